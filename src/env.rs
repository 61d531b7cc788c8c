//! The clock, the dice and the runtimes. The only place that may ask for the time or for a random number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Milliseconds since the Unix epoch, UTC.
pub type Millis = i64;

/// Time and ids. Tests replay them with [`Env::fixed`].
#[derive(Clone)]
pub struct Env(Arc<Source>);

enum Source {
    Real,
    /// Time moves on by 1 ms at every question, ids count up.
    Fixed {
        now: AtomicU64,
        next: AtomicU64,
    },
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match *self.0 {
            Source::Real => "Env::Real",
            Source::Fixed { .. } => "Env::Fixed",
        })
    }
}

impl Env {
    /// The system's clock and random ids.
    pub fn real() -> Self {
        Env(Arc::new(Source::Real))
    }

    /// A clock that starts at `start` and ids that count up.
    pub fn fixed(start: Millis) -> Self {
        Env(Arc::new(Source::Fixed {
            now: AtomicU64::new(start.max(0).unsigned_abs()),
            next: AtomicU64::new(1),
        }))
    }

    /// Now, in milliseconds since the epoch.
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the one place that asks for the time"
    )]
    pub fn now(&self) -> Millis {
        match &*self.0 {
            Source::Real => std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX)),
            Source::Fixed { now, .. } => {
                i64::try_from(now.fetch_add(1, Ordering::Relaxed)).unwrap_or(i64::MAX)
            }
        }
    }

    /// A monotonic reading, for durations.
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the one place that asks for the time"
    )]
    pub fn instant(&self) -> std::time::Instant {
        std::time::Instant::now()
    }

    /// A new version 4 UUID (counting up under [`Env::fixed`]).
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the one place that rolls dice"
    )]
    pub fn uuid(&self) -> uuid::Uuid {
        match &*self.0 {
            Source::Real => uuid::Uuid::new_v4(),
            Source::Fixed { next, .. } => {
                uuid::Uuid::from_u128(u128::from(next.fetch_add(1, Ordering::Relaxed)))
            }
        }
    }

    /// Blocks this thread, for the pause between two attempts. Never to wait for something that can be awaited. Under
    /// [`Env::fixed`] only the clock moves on.
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the one place that lets time pass"
    )]
    pub fn pause(&self, time: std::time::Duration) {
        match &*self.0 {
            Source::Real => std::thread::sleep(time),
            Source::Fixed { now, .. } => {
                let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                now.fetch_add(millis, Ordering::Relaxed);
                std::thread::yield_now();
            }
        }
    }

    /// A number in `0..bound`, for jitter; 0 when `bound` is 0.
    pub fn below(&self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        let (high, low) = self.uuid().as_u64_pair();
        (high ^ low) % bound
    }
}
