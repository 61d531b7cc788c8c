//! Named places where a process may die. Nothing happens there unless a test has armed one for its thread.

/// A place between two effects on the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// The data files of a transaction lie in the table's directory.
    DataWritten,
    /// So does its vector file, if it needs one.
    VectorsWritten,
    /// Its actions are made, and nothing of them is in the log.
    BeforeCommit,
    /// The version is there, durable.
    Committed,
    /// So is its checksum.
    Checksummed,
}

/// All of them, in the order in which a transaction meets them.
pub const ALL: &[Point] = &[
    Point::DataWritten,
    Point::VectorsWritten,
    Point::BeforeCommit,
    Point::Committed,
    Point::Checksummed,
];

#[cfg(test)]
thread_local! {
    static ARMED: std::cell::Cell<Option<Point>> = const { std::cell::Cell::new(None) };
}

/// What a crash unwinds with.
#[cfg(test)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crash;

/// Dies here when a test wants it.
#[inline]
pub fn hit(point: Point) {
    #[cfg(test)]
    if ARMED.get() == Some(point) {
        ARMED.set(None);
        std::panic::resume_unwind(Box::new(Crash));
    }
    #[cfg(not(test))]
    let _ = point;
}

/// Runs `work`, which dies at `point` if it gets there: what a process leaves behind that is killed. Nothing of it is
/// undone but what `Drop` undoes.
#[cfg(test)]
pub(crate) fn crash_at<T>(point: Point, work: impl FnOnce() -> T) -> Option<T> {
    ARMED.set(Some(point));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    ARMED.set(None);
    match outcome {
        Ok(done) => Some(done),
        Err(cause) if cause.is::<Crash>() => None,
        Err(cause) => std::panic::resume_unwind(cause),
    }
}
