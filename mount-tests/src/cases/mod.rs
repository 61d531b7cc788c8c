//! The cases, one file per area of the README's table of semantics.

mod append;
mod cat;
mod conflict;
mod content;
mod corpus;
mod create;
mod delete;
mod dropping;
mod everyday;
mod feature;
mod foreign;
mod hostile;
mod lifecycle;
mod load;
mod modern;
mod namespace;
mod optimize;
mod partition;
mod predicate;
mod read;
mod remove;
mod scratch;
mod transaction;
mod travel;

use crate::case::Case;

/// The long ones first, so that the last worker doesn't end alone.
pub(crate) fn all() -> Vec<Case> {
    let areas = [
        load::cases(),
        corpus::cases(),
        cat::cases(),
        lifecycle::cases(),
        namespace::cases(),
        travel::cases(),
        foreign::cases(),
        read::cases(),
        append::cases(),
        scratch::cases(),
        content::cases(),
        partition::cases(),
        create::cases(),
        remove::cases(),
        feature::cases(),
        modern::cases(),
        delete::cases(),
        optimize::cases(),
        conflict::cases(),
        transaction::cases(),
        predicate::cases(),
        hostile::cases(),
        everyday::cases(),
    ];
    areas.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Every case that the README calls a proof is there.
    #[test]
    fn the_readme_names_real_cases() {
        let readme = include_str!("../../../README.md");
        let names: BTreeSet<String> = super::all().iter().map(|case| case.name()).collect();
        let mut proofs = 0;
        for word in readme
            .split('`')
            .filter(|w| w.contains("::") && !w.contains(char::is_whitespace))
        {
            proofs += 1;
            let found = match word.strip_suffix('*') {
                Some(area) => names.iter().any(|name| name.starts_with(area)),
                None => names.contains(word),
            };
            assert!(found, "README.md names {word}, which is no case");
        }
        assert!(proofs > 20, "{proofs}");
    }
}
