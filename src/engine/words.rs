//! Where the clauses of a statement begin: its words, and what stands between them.

use datafusion::sql::sqlparser::tokenizer::{Location, Token, Tokenizer};

use super::dialect::DeltaDialect;
use super::error::EngineError;
use super::resolve::syntax;

/// A piece of a statement that is neither blank nor comment, nor inside of brackets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Of a word without quotes: in capitals. Else as it stands there.
    pub text: String,
    /// Whether it is a word without quotes: a keyword, perhaps.
    pub is_word: bool,
    /// Where it begins, in bytes.
    pub start: usize,
}

impl Piece {
    /// Whether it is that keyword, given in capitals.
    pub fn is(&self, keyword: &str) -> bool {
        self.is_word && self.text == keyword
    }
}

/// The pieces of a statement, in order. Brackets themselves are pieces, what is inside of them is not.
///
/// # Errors
/// [`EngineError::Syntax`] for quotes and comments without an end.
pub fn pieces(sql: &str) -> Result<Vec<Piece>, EngineError> {
    let tokens = Tokenizer::new(&DeltaDialect, sql)
        .tokenize_with_location()
        .map_err(|e| syntax(e.into()))?;
    let starts: Vec<usize> = std::iter::once(0)
        .chain(sql.match_indices('\n').map(|(at, _)| at + 1))
        .collect();
    let mut pieces = Vec::new();
    let mut depth = 0_usize;
    for token in tokens {
        let closes = matches!(token.token, Token::RParen | Token::RBracket | Token::RBrace);
        let opens = matches!(token.token, Token::LParen | Token::LBracket | Token::LBrace);
        if closes {
            depth = depth.saturating_sub(1);
        }
        let blank = matches!(token.token, Token::Whitespace(_) | Token::EOF);
        if depth == 0 && !blank {
            let word = match &token.token {
                Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_uppercase()),
                _ => None,
            };
            pieces.push(Piece {
                is_word: word.is_some(),
                text: word.unwrap_or_else(|| token.token.to_string()),
                start: offset(sql, &starts, token.span.start),
            });
        }
        if opens {
            depth = depth.saturating_add(1);
        }
    }
    Ok(pieces)
}

/// Bytes before a place. Its column counts characters.
fn offset(sql: &str, starts: &[usize], at: Location) -> usize {
    let index = |n: u64| usize::try_from(n.saturating_sub(1)).unwrap_or(usize::MAX);
    let Some(start) = starts.get(index(at.line)) else {
        return sql.len();
    };
    let rest = sql.get(*start..).unwrap_or_default();
    let inside = rest.char_indices().nth(index(at.column));
    inside.map_or(sql.len(), |(bytes, _)| start + bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(sql: &str) -> Vec<(String, bool, String)> {
        let rest = |p: &Piece| sql[p.start..].chars().take(3).collect();
        let pieces = pieces(sql).unwrap().into_iter();
        pieces
            .map(|p| (p.text.clone(), p.is_word, rest(&p)))
            .collect()
    }

    #[test]
    fn pieces_stand_where_they_say() {
        let piece = |text: &str, word, rest: &str| (text.to_owned(), word, rest.to_owned());
        let found =
            words("optimize -- é\n wHere p = 'WHERE (' AND (a or b) /* x */ ZOrder by (`é`)");
        assert_eq!(
            found,
            [
                piece("OPTIMIZE", true, "opt"),
                piece("WHERE", true, "wHe"),
                piece("P", true, "p ="),
                piece("=", false, "= '"),
                piece("'WHERE ('", false, "'WH"),
                piece("AND", true, "AND"),
                piece("(", false, "(a "),
                piece(")", false, ") /"),
                piece("ZORDER", true, "ZOr"),
                piece("BY", true, "by "),
                piece("(", false, "(`é"),
                piece(")", false, ")"),
            ]
        );
        assert_eq!(
            words("é WHERE `where`")[1..],
            [piece("WHERE", true, "WHE"), piece("`where`", false, "`wh"),]
        );
        assert_eq!(words("\n\n é é")[1], piece("É", true, "é"));
        assert!(words(" ").is_empty());
    }

    #[test]
    fn what_has_no_end_is_refused() {
        for bad in ["a = 'x", "`x", "/* x"] {
            let error = pieces(bad).unwrap_err();
            assert!(
                matches!(error, EngineError::Syntax { .. }),
                "{bad}: {error}"
            );
        }
        // Brackets are for those who parse what is inside.
        assert!(pieces("a ))((").is_ok());
    }
}
