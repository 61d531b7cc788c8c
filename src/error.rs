//! What a failure means to a caller. Every layer has its own error enum; this names what they share.

/// What a caller can do about a failure. The only mapping to errno is `fuse/errno.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It does not exist.
    Absent,
    /// A concurrent transaction won; trying again makes sense.
    Conflict,
    /// The statement, schema or data is wrong.
    Invalid,
    /// Not allowed here (appendOnly, switched off, not this kind of path).
    Denied,
    /// The mount, version or directory is read-only.
    ReadOnly,
    /// The table needs a feature that deltafs does not implement.
    Unsupported,
    /// Space, quota or memory budget is used up.
    NoSpace,
    /// The stored bytes contradict the protocol or themselves.
    Corrupt,
    /// The store did not answer or answered with a fault.
    Unavailable,
}

impl Kind {
    /// The word used in JSON results (`.delta/last`, `rejected/*.reason`).
    pub fn name(self) -> &'static str {
        match self {
            Kind::Absent => "not_found",
            Kind::Conflict => "conflict",
            Kind::Invalid => "invalid",
            Kind::Denied => "denied",
            Kind::ReadOnly => "read_only",
            Kind::Unsupported => "unsupported",
            Kind::NoSpace => "no_space",
            Kind::Corrupt => "corrupt",
            Kind::Unavailable => "unavailable",
        }
    }
}

/// Implemented by the error enum of every layer.
pub trait Failure: std::error::Error {
    /// What a caller can do about it.
    fn kind(&self) -> Kind;

    /// The way out, if one is known: a full sentence without a final newline.
    fn hint(&self) -> Option<String> {
        None
    }

    /// What a program can read of it beside the message: fields of a JSON object.
    fn facts(&self) -> Vec<(&'static str, serde_json::Value)> {
        Vec::new()
    }
}

/// Runs `decode`, and gives `None` when it panics: third-party decoders do, on bytes that are damaged in a way
/// that they do not expect. Whatever it was working on must be dropped then.
pub(crate) fn caught<T>(decode: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode)).ok()
}

/// Kind of an operating system error.
pub(crate) fn io_kind(error: &std::io::Error) -> Kind {
    use std::io::ErrorKind as E;
    match error.kind() {
        E::NotFound => Kind::Absent,
        E::PermissionDenied => Kind::Denied,
        E::ReadOnlyFilesystem => Kind::ReadOnly,
        E::StorageFull | E::QuotaExceeded | E::FileTooLarge => Kind::NoSpace,
        E::InvalidData | E::UnexpectedEof => Kind::Corrupt,
        E::NotADirectory | E::IsADirectory | E::InvalidInput | E::InvalidFilename => Kind::Invalid,
        _ => Kind::Unavailable,
    }
}
