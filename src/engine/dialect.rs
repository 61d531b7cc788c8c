//! The SQL that Delta's users write: Spark's, as sqlparser understands it.

use std::any::TypeId;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Interval, Value};
use datafusion::sql::sqlparser::dialect::{DatabricksDialect, Dialect};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

/// Databricks' flags plus Spark's identifiers (any letter), string escapes and `DIV`.
#[derive(Debug, Default, Clone, Copy)]
pub struct DeltaDialect;

impl Dialect for DeltaDialect {
    fn dialect(&self) -> TypeId {
        DatabricksDialect.dialect()
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        ch == '`'
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        ch == '_' || ch.is_alphabetic()
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        ch == '_' || ch.is_alphanumeric()
    }

    fn supports_numeric_prefix(&self) -> bool {
        true
    }

    /// `'it\'s'`; see <https://spark.apache.org/docs/latest/sql-ref-literals.html>.
    fn supports_string_literal_backslash_escape(&self) -> bool {
        true
    }

    /// `\%` and `\_` reach LIKE as they are.
    fn ignores_wildcard_escapes(&self) -> bool {
        true
    }

    fn supports_string_literal_concatenation(&self) -> bool {
        true
    }

    fn supports_filter_during_aggregation(&self) -> bool {
        true
    }

    fn supports_group_by_expr(&self) -> bool {
        true
    }

    fn supports_group_by_with_modifier(&self) -> bool {
        true
    }

    fn supports_table_versioning(&self) -> bool {
        true
    }

    fn supports_lambda_functions(&self) -> bool {
        true
    }

    fn supports_select_wildcard_except(&self) -> bool {
        true
    }

    fn supports_struct_literal(&self) -> bool {
        true
    }

    fn supports_nested_comments(&self) -> bool {
        true
    }

    fn supports_values_as_table_factor(&self) -> bool {
        true
    }

    fn supports_optimize_table(&self) -> bool {
        true
    }

    fn supports_create_table_using(&self) -> bool {
        true
    }

    fn supports_long_type_as_bigint(&self) -> bool {
        true
    }

    fn supports_map_literal_with_angle_brackets(&self) -> bool {
        true
    }

    fn supports_bang_not_operator(&self) -> bool {
        true
    }

    fn supports_cte_without_as(&self) -> bool {
        true
    }

    fn supports_select_item_multi_column_alias(&self) -> bool {
        true
    }

    fn require_interval_qualifier(&self) -> bool {
        true
    }

    /// `INTERVAL '7 days'`, with the unit inside.
    fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        let Token::SingleQuotedString(text) = parser.peek_nth_token(1).token else {
            return None;
        };
        if !text.contains(|c: char| c.is_ascii_alphabetic())
            || !parser.parse_keyword(Keyword::INTERVAL)
        {
            return None;
        }
        parser.next_token();
        Some(Ok(Expr::Interval(Interval {
            value: Box::new(Expr::value(Value::SingleQuotedString(text))),
            leading_field: None,
            leading_precision: None,
            last_field: None,
            fractional_seconds_precision: None,
        })))
    }

    /// `DIV`, and `IS [NOT] DISTINCT FROM`, whose right side sqlparser reads up to the end of the text:
    /// `a IS DISTINCT FROM b AND c` would compare `a` with `b AND c`.
    fn parse_infix(
        &self,
        parser: &mut Parser<'_>,
        left: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        use Keyword as K;
        let build: fn(Box<Expr>, Box<Expr>) -> Expr = if parser.parse_keyword(K::DIV) {
            |left, right| Expr::BinaryOp {
                left,
                op: BinaryOperator::MyIntegerDivide,
                right,
            }
        } else if parser.parse_keywords(&[K::IS, K::DISTINCT, K::FROM]) {
            Expr::IsDistinctFrom
        } else if parser.parse_keywords(&[K::IS, K::NOT, K::DISTINCT, K::FROM]) {
            Expr::IsNotDistinctFrom
        } else {
            return None;
        };
        let right = parser.parse_subexpr(precedence);
        Some(right.map(|right| build(Box::new(left.clone()), Box::new(right))))
    }
}
