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
    /// The commit lies in the log under a temporary name.
    CommitWritten,
    /// It has its name, too, which need not be durable yet.
    CommitNamed,
    /// The version is there, durable.
    Committed,
    /// So is its checksum.
    Checksummed,
    /// A checkpoint lies in the log under a temporary name, with all that it refers to.
    CheckpointWritten,
    /// It has its name.
    CheckpointNamed,
    /// `_last_checkpoint` names it.
    CheckpointPointed,
}

impl Point {
    /// Whether a transaction that gets here is committed.
    #[cfg(test)]
    pub(crate) fn is_committed(self) -> bool {
        match self {
            Point::DataWritten
            | Point::VectorsWritten
            | Point::BeforeCommit
            | Point::CommitWritten => false,
            Point::CommitNamed
            | Point::Committed
            | Point::Checksummed
            | Point::CheckpointWritten
            | Point::CheckpointNamed
            | Point::CheckpointPointed => true,
        }
    }
}

/// Those of a transaction, in the order in which it meets them.
pub const TRANSACTION: &[Point] = &[
    Point::DataWritten,
    Point::VectorsWritten,
    Point::BeforeCommit,
    Point::CommitWritten,
    Point::CommitNamed,
    Point::Committed,
    Point::Checksummed,
];

/// Those of a checkpoint.
pub const CHECKPOINT: &[Point] = &[
    Point::CheckpointWritten,
    Point::CheckpointNamed,
    Point::CheckpointPointed,
];

#[cfg(test)]
thread_local! {
    static ARMED: std::cell::Cell<Option<Point>> = const { std::cell::Cell::new(None) };
    static DYING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
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
        DYING.set(true);
        std::panic::resume_unwind(Box::new(Crash));
    }
    #[cfg(not(test))]
    let _ = point;
}

/// Whether this is the unwinding of a crash: whoever tidies up in `Drop` leaves it, since a process that is killed
/// tidies nothing up.
#[inline]
pub fn is_dying() -> bool {
    #[cfg(test)]
    return DYING.get();
    #[cfg(not(test))]
    false
}

/// Runs `work`, which dies at `point` if it gets there: what a process leaves behind that is killed.
#[cfg(test)]
pub(crate) fn crash_at<T>(point: Point, work: impl FnOnce() -> T) -> Option<T> {
    ARMED.set(Some(point));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    ARMED.set(None);
    DYING.set(false);
    match outcome {
        Ok(done) => Some(done),
        Err(cause) if cause.is::<Crash>() => None,
        Err(cause) => std::panic::resume_unwind(cause),
    }
}
