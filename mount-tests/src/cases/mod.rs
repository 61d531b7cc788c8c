//! The cases, one file per area of the README's table of semantics.

mod append;
mod content;
mod corpus;
mod create;
mod delete;
mod dropping;
mod everyday;
mod feature;
mod hostile;
mod lifecycle;
mod load;
mod namespace;
mod partition;
mod predicate;
mod read;
mod remove;
mod scratch;

use crate::case::Case;

/// The long ones first, so that the last worker doesn't end alone.
pub(crate) fn all() -> Vec<Case> {
    let areas = [
        load::cases(),
        corpus::cases(),
        lifecycle::cases(),
        namespace::cases(),
        read::cases(),
        append::cases(),
        scratch::cases(),
        content::cases(),
        partition::cases(),
        create::cases(),
        remove::cases(),
        feature::cases(),
        delete::cases(),
        predicate::cases(),
        hostile::cases(),
        everyday::cases(),
    ];
    areas.into_iter().flatten().collect()
}
