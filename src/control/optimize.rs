//! The text of `ctl/optimize`: `[OPTIMIZE] [WHERE condition]`, one of both at least.

use super::ControlError;
use crate::engine::{Piece, pieces};

/// What there is.
const GRAMMAR: &str =
    "`OPTIMIZE` for the whole table, `WHERE condition` for the partitions that it chooses";

/// The condition of an OPTIMIZE; `None` when it is for the whole table.
///
/// # Errors
/// [`ControlError::NotYet`] for clauses of Delta's grammar that deltafs does not know, [`ControlError::Expected`] and
/// [`ControlError::Text`] for what is not of that grammar.
pub fn optimize(text: &str) -> Result<Option<&str>, ControlError> {
    let pieces = pieces(text)?;
    let mut rest = pieces.as_slice();
    let named = take(&mut rest, "OPTIMIZE");
    if take(&mut rest, "FULL") {
        return Err(not_yet("OPTIMIZE FULL"));
    }
    let ordered = |at: &[Piece]| matches!(at, [a, b] if a.is("ZORDER") && b.is("BY"));
    if let Some(first) = rest.first() {
        let begins = rest.get(..2).is_some_and(ordered);
        if !first.is("WHERE") && !begins {
            return Err(ControlError::Expected {
                expected: GRAMMAR,
                found: text.get(first.start..).unwrap_or_default().to_owned(),
            });
        }
    }
    if rest.windows(2).any(ordered) {
        return Err(not_yet("ZORDER BY"));
    }
    if !take(&mut rest, "WHERE") {
        return if named {
            Ok(None)
        } else {
            Err(ControlError::Empty)
        };
    }
    // Without anything behind it, it is for who parses conditions to say so.
    let start = rest.first().map_or(text.len(), |piece| piece.start);
    Ok(text.get(start..))
}

fn take(rest: &mut &[Piece], keyword: &str) -> bool {
    match rest.split_first() {
        Some((first, after)) if first.is(keyword) => {
            *rest = after;
            true
        }
        _ => false,
    }
}

fn not_yet(what: &'static str) -> ControlError {
    ControlError::NotYet {
        what,
        there: GRAMMAR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Failure as _, Kind};

    #[test]
    fn the_word_alone_or_a_condition() {
        for all in ["OPTIMIZE", "optimize", "Optimize -- tonight"] {
            assert_eq!(optimize(all).unwrap(), None, "{all}");
        }
        for one in [
            "WHERE p = 'WHERE x'",
            "optimize where p = 'WHERE x'",
            "OPTIMIZE\n  WHERE\n  p = 'WHERE x'",
            "OPTIMIZE WHERE -- é\n p = 'WHERE x'",
        ] {
            assert_eq!(optimize(one).unwrap(), Some("p = 'WHERE x'"), "{one}");
        }
        assert_eq!(optimize("WHERE (a = 1)").unwrap(), Some("(a = 1)"));
        assert_eq!(optimize("OPTIMIZE WHERE").unwrap(), Some(""));
        // Columns may have any name.
        assert_eq!(optimize("WHERE zorder = 1").unwrap(), Some("zorder = 1"));
        assert_eq!(
            optimize("WHERE `zorder by` = 1").unwrap(),
            Some("`zorder by` = 1")
        );
    }

    #[test]
    fn what_is_not_there_yet_is_named() {
        for (text, what) in [
            ("OPTIMIZE FULL", "FULL"),
            ("FULL WHERE p = 1", "FULL"),
            ("OPTIMIZE ZORDER BY (id)", "ZORDER BY"),
            ("WHERE p = (1) ZORDER BY (id)", "ZORDER BY"),
            ("zorder by id", "ZORDER BY"),
        ] {
            let error = optimize(text).unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported, "{text}: {error}");
            assert!(error.to_string().contains(what), "{text}: {error}");
            assert!(error.hint().unwrap().contains("WHERE"), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "TRUE",
            "p = 1",
            "OPTIMIZE orders",
            "OPTIMIZE (",
            "`OPTIMIZE`",
            "OPTIMIZE; OPTIMIZE",
            "DELETE WHERE p = 1",
        ] {
            let error = optimize(text).unwrap_err();
            assert!(
                matches!(error, ControlError::Expected { .. }),
                "{text}: {error}"
            );
            assert_eq!(error.kind(), Kind::Invalid);
        }
        assert!(matches!(
            optimize("WHERE p = 'x"),
            Err(ControlError::Text(_))
        ));
    }
}
