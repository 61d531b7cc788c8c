//! The cases, one file per area of the README's table of semantics.

mod lifecycle;

use crate::case::Case;

pub(crate) fn all() -> Vec<Case> {
    [lifecycle::cases()].into_iter().flatten().collect()
}
