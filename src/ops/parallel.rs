//! Work that falls into pieces, a core each.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::OpError;

/// Does `work` on each item, and gives the results in the order of the items. After a failure the others finish what
/// they have begun and begin no more.
///
/// # Errors
/// The failure of the first item that has one.
pub(super) fn on_every_core<I: Sync, T: Send>(
    items: &[I],
    work: impl Fn(&I) -> Result<T, OpError> + Sync,
) -> Result<Vec<T>, OpError> {
    let next = AtomicUsize::new(0);
    let results: Mutex<BTreeMap<usize, Result<T, OpError>>> = Mutex::default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores.min(items.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else {
                        return;
                    };
                    let result = work(item);
                    if result.is_err() {
                        next.store(items.len(), Ordering::Relaxed);
                    }
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.insert(index, result);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_a_failure_ends_the_work() {
        let items: Vec<u64> = (0..500).collect();
        let doubled = on_every_core(&items, |n| Ok(n * 2)).unwrap();
        assert_eq!(doubled, items.iter().map(|n| n * 2).collect::<Vec<_>>());
        let failed = on_every_core(&items, |n| match n {
            7 | 400 => Err(OpError::Gone(n.to_string())),
            n => Ok(*n),
        });
        assert!(matches!(failed, Err(OpError::Gone(n)) if n == "7"));
        assert!(on_every_core(&[], |n: &u64| Ok(*n)).unwrap().is_empty());
    }
}
