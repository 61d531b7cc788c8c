//! The only table of error numbers.
//!
//! Chosen by what tools do with them: ESTALE makes the kernel call again, EINTR makes tools loop for ever, EAGAIN
//! means "later" to Python and libuv, ENOSYS makes the kernel stop asking. None of these stands for a refusal.

use fuser::Errno;

use crate::error::Kind;
use crate::fs::FsError;

/// What deltafs has not got: links, devices, pipes, sockets.
pub(super) const NO_SUCH_KIND_OF_FILE: Errno = Errno::EPERM;

/// READLINK of something that is no symbolic link.
pub(super) const NOT_A_LINK: Errno = Errno::EINVAL;

/// A flag of RENAME that only stacked file systems use.
pub(super) const UNKNOWN_FLAG: Errno = Errno::EINVAL;

/// IOCTL: there are no commands.
pub(super) const NO_IOCTL: Errno = Errno::ENOTTY;

/// BMAP, locks: never asked for, given how we mount.
pub(super) const NOT_SUPPORTED: Errno = Errno::EOPNOTSUPP;

/// "Do it yourself and don't ask again", for what the kernel does well alone: no extended attributes (saves a request
/// for each WRITE), every byte of a file is data (SEEK_DATA), files are always ready (poll).
pub(super) const LEFT_TO_THE_KERNEL: Errno = Errno::ENOSYS;

/// The number of a failure.
pub(super) fn errno(error: &FsError) -> Errno {
    match error {
        FsError::NotFound => Errno::ENOENT,
        FsError::Exists => Errno::EEXIST,
        FsError::NotDir => Errno::ENOTDIR,
        FsError::IsDir => Errno::EISDIR,
        FsError::NotEmpty => Errno::ENOTEMPTY,
        FsError::NameTooLong => Errno::ENAMETOOLONG,
        FsError::Stale => Errno::ESTALE,
        FsError::CrossDevice => Errno::EXDEV,
        FsError::BadHandle => Errno::EBADF,
        FsError::NotPermitted(_) => Errno::EPERM,
        FsError::Domain { kind, .. } => match kind {
            Kind::Absent => Errno::ENOENT,
            Kind::Conflict => Errno::EBUSY,
            Kind::Invalid => Errno::EINVAL,
            Kind::Denied => Errno::EPERM,
            Kind::ReadOnly => Errno::EROFS,
            Kind::Unsupported => Errno::EOPNOTSUPP,
            Kind::NoSpace => Errno::ENOSPC,
            Kind::Corrupt | Kind::Unavailable => Errno::EIO,
        },
    }
}

/// The number of a failed RENAME: `mv` reads EINVAL as "cannot move to a subdirectory of itself".
pub(super) fn rename_errno(error: &FsError) -> Errno {
    match error {
        FsError::Domain {
            kind: Kind::Invalid,
            ..
        } => Errno::EPERM,
        other => errno(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 9] = [
        Kind::Absent,
        Kind::Conflict,
        Kind::Invalid,
        Kind::Denied,
        Kind::ReadOnly,
        Kind::Unsupported,
        Kind::NoSpace,
        Kind::Corrupt,
        Kind::Unavailable,
    ];

    fn failures() -> Vec<FsError> {
        let mut all = vec![
            FsError::NotFound,
            FsError::Exists,
            FsError::NotDir,
            FsError::IsDir,
            FsError::NotEmpty,
            FsError::NameTooLong,
            FsError::Stale,
            FsError::CrossDevice,
            FsError::BadHandle,
            FsError::NotPermitted("no".to_owned()),
        ];
        all.extend(KINDS.map(domain));
        all
    }

    fn domain(kind: Kind) -> FsError {
        FsError::Domain {
            kind,
            message: String::new(),
            hint: None,
        }
    }

    #[test]
    fn no_failure_makes_the_kernel_or_a_tool_repeat_itself() {
        for error in failures() {
            for number in [errno(&error), rename_errno(&error)] {
                for bad in [libc::ENOSYS, libc::EINTR, libc::EAGAIN] {
                    assert_ne!(number.code(), bad, "{error:?}");
                }
                assert_eq!(
                    number.code() == libc::ESTALE,
                    error == FsError::Stale,
                    "{error:?}"
                );
            }
        }
    }

    #[test]
    fn kinds_have_the_numbers_of_the_manual() {
        let number = |kind| errno(&domain(kind)).code();
        assert_eq!(number(Kind::Conflict), libc::EBUSY);
        assert_eq!(number(Kind::Invalid), libc::EINVAL);
        assert_eq!(number(Kind::Denied), libc::EPERM);
        assert_eq!(number(Kind::ReadOnly), libc::EROFS);
        assert_eq!(number(Kind::Unsupported), libc::EOPNOTSUPP);
        assert_eq!(number(Kind::NoSpace), libc::ENOSPC);
        assert_eq!(number(Kind::Corrupt), libc::EIO);
    }

    #[test]
    fn rename_never_answers_invalid() {
        for error in failures() {
            assert_ne!(rename_errno(&error).code(), libc::EINVAL, "{error:?}");
        }
    }
}
