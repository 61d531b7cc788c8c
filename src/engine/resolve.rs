//! User text to a syntax tree that DataFusion plans as Spark would: columns get the table's spelling, and what
//! a predicate must not hold is refused with its place.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    self, AccessExpr, BinaryOperator, CastKind, DateTimeField, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName, ObjectNamePart,
    Query, Spanned, Subscript, TimezoneInfo, TypedString, UnaryOperator, Value, VisitMut,
    VisitorMut,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer};

use crate::env::Millis;
use crate::schema::{DataType, StructType, partition};

use super::dialect::DeltaDialect;
use super::error::{EngineError, Position};
use super::functions::{ELEMENT_AT, INTEGER_DIVIDE, SUBSCRIPT};
use super::spelling::nearest;

/// Levels of parentheses, functions and NOT.
const MAX_NESTING: usize = 60;
/// Operators in a row without AND, OR or a comma between them.
const MAX_CHAIN: usize = 500;

const THE_END: &str = ", found the end";

/// Functions that depend on the file, the plan or the process rather than on the row.
const NOT_OF_THE_ROW: [&str; 7] = [
    "input_file_name",
    "file_row_index",
    "monotonically_increasing_id",
    "spark_partition_id",
    "input_file_block_start",
    "input_file_block_length",
    "version",
];

/// DataFusion's functions of these names, with so many arguments or more, are not Spark's.
const NOT_AS_SPARK: [(&str, usize); 9] = [
    ("date_format", 0),
    ("to_char", 0),
    ("from_unixtime", 0),
    ("to_date", 2),
    ("to_timestamp", 2),
    ("ltrim", 2),
    ("rtrim", 2),
    ("btrim", 3),
    ("regexp_count", 3),
];

/// A predicate's tree, and the top-level columns that it names, in the table's spelling and order of first use.
pub(super) struct Resolved {
    pub(super) expr: Expr,
    pub(super) columns: Vec<String>,
}

/// Parses and resolves. `now` replaces `current_timestamp()` and its like.
pub(super) fn resolve(
    sql: &str,
    schema: &StructType,
    now: Millis,
    state: &SessionState,
) -> Result<Resolved, EngineError> {
    let mut resolver = Resolver {
        schema,
        now,
        state,
        columns: Vec::new(),
    };
    let mut expr = parse(sql)?;
    match VisitMut::visit(&mut expr, &mut resolver) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(Resolved {
            expr,
            columns: resolver.columns,
        }),
    }
}

fn parse(sql: &str) -> Result<Expr, EngineError> {
    let tokens = Tokenizer::new(&DeltaDialect, sql)
        .tokenize_with_location()
        .map_err(|e| syntax(ParserError::from(e)))?;
    let blank = |t: &TokenWithSpan| {
        matches!(
            t.token,
            Token::Whitespace(_) | Token::SemiColon | Token::EOF
        )
    };
    if tokens.iter().all(blank) {
        return Err(EngineError::Empty);
    }
    check_chains(&tokens)?;
    if let Some(first) = tokens.iter().find(|t| !blank(t))
        && let Token::Word(word) = &first.token
        && word.keyword == Keyword::WHERE
        && word.quote_style.is_none()
    {
        return Err(EngineError::Syntax {
            reason: "expected a condition, found `WHERE`".to_owned(),
            at: position(first.span),
        });
    }
    let mut parser = Parser::new(&DeltaDialect)
        .with_recursion_limit(MAX_NESTING)
        .with_tokens_with_locations(tokens);
    let expr = parser.parse_expr().map_err(|e| match syntax(e) {
        EngineError::Syntax { reason, .. } if reason.ends_with(THE_END) => EngineError::Syntax {
            reason,
            at: end_of(sql),
        },
        other => other,
    })?;
    while parser.consume_token(&Token::SemiColon) {}
    let next = parser.peek_token();
    if next.token != Token::EOF {
        return Err(EngineError::Trailing {
            found: format!("`{}`", next.token),
            at: position(next.span),
        });
    }
    Ok(expr)
}

/// The parser makes `a + a + a …` a tree as deep as it is long; what walks or drops it would run out of stack.
/// Chains of AND and OR are balanced later, so only other operators count.
fn check_chains(tokens: &[TokenWithSpan]) -> Result<(), EngineError> {
    let mut chain = 0usize;
    for token in tokens {
        match &token.token {
            Token::Comma => chain = 0,
            Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                Keyword::AND | Keyword::OR | Keyword::WHEN | Keyword::THEN => chain = 0,
                Keyword::IS | Keyword::DIV | Keyword::LIKE | Keyword::IN | Keyword::NOT => {
                    chain += 1;
                }
                _ => {}
            },
            Token::Eq
            | Token::DoubleEq
            | Token::Neq
            | Token::Lt
            | Token::Gt
            | Token::LtEq
            | Token::GtEq
            | Token::Spaceship
            | Token::Plus
            | Token::Minus
            | Token::Mul
            | Token::Div
            | Token::Mod
            | Token::StringConcat
            | Token::Pipe
            | Token::Caret
            | Token::Ampersand
            | Token::DoubleColon
            | Token::Period
            | Token::LBracket
            | Token::ExclamationMark => chain += 1,
            _ => {}
        }
        if chain > MAX_CHAIN {
            return Err(EngineError::TooDeep { limit: MAX_CHAIN });
        }
    }
    Ok(())
}

/// sqlparser gives the place only inside its message.
pub(super) fn syntax(error: ParserError) -> EngineError {
    let message = match error {
        ParserError::RecursionLimitExceeded => {
            return EngineError::TooDeep { limit: MAX_NESTING };
        }
        ParserError::ParserError(message) | ParserError::TokenizerError(message) => message,
    };
    let mut at = Position { line: 1, column: 1 };
    let mut reason = message.as_str();
    if let Some((before, place)) = message.rsplit_once(" at Line: ")
        && let Some((line, column)) = place.split_once(", Column: ")
        && let (Ok(line), Ok(column)) = (line.trim().parse(), column.trim().parse())
    {
        reason = before;
        at = Position { line, column };
    }
    let mut reason = reason
        .replace("Expected: ", "expected ")
        .replace(", found: ", ", found ");
    if reason.ends_with(", found EOF") {
        reason = reason.replace(", found EOF", THE_END);
    }
    EngineError::Syntax { reason, at }
}

/// The place behind the last character.
fn end_of(sql: &str) -> Position {
    let last = sql.rsplit('\n').next().unwrap_or_default();
    Position {
        line: sql.matches('\n').count() as u64 + 1,
        column: last.chars().count() as u64 + 1,
    }
}

fn position(span: Span) -> Position {
    let Location { line, column } = span.start;
    Position {
        line: line.max(1),
        column: column.max(1),
    }
}

struct Resolver<'a> {
    schema: &'a StructType,
    now: Millis,
    state: &'a SessionState,
    columns: Vec<String>,
}

/// One step from a value into it.
enum Step {
    /// `.name`
    Name(Ident),
    /// `['name']`
    Key(String, Span),
    /// `[index]`
    Index(Box<Expr>),
}

impl VisitorMut for Resolver<'_> {
    type Break = EngineError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<EngineError> {
        ControlFlow::Break(EngineError::NotAllowed {
            what: "a sub-query",
            at: position(query.span()),
        })
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<EngineError> {
        match self.rewrite(expr) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

impl Resolver<'_> {
    fn rewrite(&mut self, expr: &mut Expr) -> Result<(), EngineError> {
        let refused = |what, span| {
            Err(EngineError::NotAllowed {
                what,
                at: position(span),
            })
        };
        match expr {
            Expr::BinaryOp {
                op: BinaryOperator::And | BinaryOperator::Or,
                ..
            } => balance(expr),
            Expr::BinaryOp {
                op: BinaryOperator::MyIntegerDivide,
                left,
                right,
            } => {
                let (left, right) = (take(left), take(right));
                *expr = call(INTEGER_DIVIDE, vec![left, right]);
            }
            Expr::UnaryOp {
                op: op @ UnaryOperator::BangNot,
                ..
            } => *op = UnaryOperator::Not,
            Expr::UnaryOp {
                op: UnaryOperator::BitwiseNot,
                expr: inner,
            } => *expr = call("bitwise_not", vec![take(inner)]),
            Expr::RLike {
                negated,
                expr: inner,
                pattern,
                ..
            } => {
                let test = call("regexp_like", vec![take(inner), take(pattern)]);
                *expr = if *negated { not(test) } else { test };
            }
            Expr::Identifier(ident) => *expr = self.path(ident.clone(), Vec::new())?,
            Expr::CompoundIdentifier(parts) => {
                let mut parts = std::mem::take(parts).into_iter();
                if let Some(root) = parts.next() {
                    *expr = self.path(root, parts.map(Step::Name).collect())?;
                }
            }
            Expr::CompoundFieldAccess { .. } => self.rewrite_access(expr)?,
            Expr::Function(_) => self.rewrite_function(expr)?,
            Expr::Subquery(_)
            | Expr::Exists { .. }
            | Expr::InSubquery { .. }
            | Expr::InUnnest { .. } => return refused("a sub-query", expr.span()),
            Expr::AnyOp { .. } | Expr::AllOp { .. } => {
                return refused("ANY, SOME or ALL", expr.span());
            }
            Expr::Collate { .. } => return refused("COLLATE", expr.span()),
            Expr::Extract {
                field: DateTimeField::Dow | DateTimeField::DayOfWeek,
                expr: inner,
                ..
            } => *expr = call("dayofweek", vec![take(inner)]),
            Expr::Lambda(_) => return refused("a lambda function", expr.span()),
            Expr::Wildcard(_) | Expr::QualifiedWildcard(..) => {
                return refused("`*`", expr.span());
            }
            Expr::JsonAccess { .. } => return refused("the `:` operator", expr.span()),
            Expr::Value(value) => match &value.value {
                Value::Placeholder(_) => return refused("a parameter", value.span),
                // Text in Spark, a column in every other SQL: whoever writes a column's name means the column.
                Value::DoubleQuotedString(text) if self.schema.field(text).is_some() => {
                    return Err(EngineError::QuotedColumn {
                        column: text.clone(),
                        at: position(value.span),
                    });
                }
                Value::Number(digits, _) if digits.contains(['e', 'E']) => {
                    *expr = scientific(digits);
                }
                _ => {}
            },
            _ => {}
        }
        Ok(())
    }

    fn rewrite_access(&mut self, expr: &mut Expr) -> Result<(), EngineError> {
        let Expr::CompoundFieldAccess { root, access_chain } = expr else {
            return Ok(());
        };
        let mut steps = Vec::with_capacity(access_chain.len());
        for access in std::mem::take(access_chain) {
            steps.push(match access {
                AccessExpr::Dot(Expr::Identifier(name)) => Step::Name(name),
                AccessExpr::Dot(other) => {
                    return Err(EngineError::NotAllowed {
                        what: "a method call",
                        at: position(other.span()),
                    });
                }
                AccessExpr::Subscript(Subscript::Index { index }) => match index {
                    Expr::Value(ast::ValueWithSpan {
                        value: Value::SingleQuotedString(key) | Value::DoubleQuotedString(key),
                        span,
                    }) => Step::Key(key, span),
                    index => Step::Index(Box::new(index)),
                },
                AccessExpr::Subscript(Subscript::Slice { .. }) => {
                    return Err(EngineError::NotAllowed {
                        what: "a slice",
                        at: position(root.span()),
                    });
                }
            });
        }
        *expr = match take(root) {
            Expr::Identifier(name) => self.path(name, steps)?,
            Expr::CompoundIdentifier(parts) => {
                let mut parts = parts.into_iter();
                let Some(name) = parts.next() else {
                    return Ok(());
                };
                let steps = parts.map(Step::Name).chain(steps).collect();
                self.path(name, steps)?
            }
            // Its type is known only once it is planned.
            other => steps.into_iter().fold(other, |base, step| {
                let key = match step {
                    Step::Name(name) => text(name.value),
                    Step::Key(key, _) => text(key),
                    Step::Index(index) => *index,
                };
                call(SUBSCRIPT, vec![base, key])
            }),
        };
        Ok(())
    }

    /// A column and the way into it. Struct fields are looked up here, where names still have a place.
    fn path(&mut self, root: Ident, steps: Vec<Step>) -> Result<Expr, EngineError> {
        let Some(field) = self.schema.field(&root.value) else {
            if steps.is_empty()
                && root.quote_style.is_none()
                && let Some(number) = suffixed_number(&root.value)
            {
                return Ok(number);
            }
            let columns: Vec<_> = self.schema.fields.iter().map(|f| f.name.clone()).collect();
            let dotted = steps
                .iter()
                .fold(root.value.clone(), |path, step| match step {
                    Step::Name(name) => format!("{path}.{}", name.value),
                    _ => path,
                });
            return Err(EngineError::UnknownColumn {
                nearest: match self.schema.field(&dotted) {
                    Some(field) => Some(field.name.clone()),
                    None => nearest(&root.value, columns.iter().map(String::as_str)),
                },
                name: root.value,
                at: position(root.span),
                columns,
            });
        };
        if !self.columns.contains(&field.name) {
            self.columns.push(field.name.clone());
        }
        let mut spelled = field.name.clone();
        let mut data_type = &field.data_type;
        let mut expr = Expr::Identifier(Ident {
            value: field.name.clone(),
            quote_style: Some('`'),
            span: root.span,
        });
        for step in steps {
            (expr, data_type) = match (data_type, step) {
                (DataType::Struct(fields), Step::Name(Ident { value, span, .. }))
                | (DataType::Struct(fields), Step::Key(value, span)) => {
                    let Some(field) = fields.field(&value) else {
                        let fields: Vec<_> = fields.fields.iter().map(|f| f.name.clone()).collect();
                        return Err(EngineError::UnknownField {
                            nearest: nearest(&value, fields.iter().map(String::as_str)),
                            name: value,
                            parent: spelled,
                            at: position(span),
                            fields,
                        });
                    };
                    spelled = format!("{spelled}.{}", field.name);
                    let key = text(field.name.clone());
                    (call("get_field", vec![expr, key]), &field.data_type)
                }
                (DataType::Map(map), step) => {
                    let key = match step {
                        Step::Name(Ident { value, .. }) | Step::Key(value, _) => text(value),
                        Step::Index(key) => *key,
                    };
                    (call(SUBSCRIPT, vec![expr, key]), &map.value_type)
                }
                (DataType::Array(array), Step::Index(index)) => {
                    (call(SUBSCRIPT, vec![expr, *index]), &array.element_type)
                }
                (other, step) => {
                    let span = match step {
                        Step::Name(Ident { span, .. }) | Step::Key(_, span) => span,
                        Step::Index(index) => index.span(),
                    };
                    return Err(EngineError::NoFields {
                        column: spelled,
                        found: other.to_string(),
                        at: position(span),
                    });
                }
            };
        }
        Ok(expr)
    }

    fn rewrite_function(&mut self, expr: &mut Expr) -> Result<(), EngineError> {
        let Expr::Function(function) = expr else {
            return Ok(());
        };
        let at = position(function.name.span());
        let [ObjectNamePart::Identifier(ident)] = function.name.0.as_mut_slice() else {
            return Err(EngineError::UnknownFunction {
                name: function.name.to_string(),
                at,
                nearest: None,
            });
        };
        let refused = |what| Err(EngineError::NotAllowed { what, at });
        if function.over.is_some() {
            return refused("a window function");
        }
        if let FunctionArguments::List(list) = &function.args
            && list.args.iter().any(|a| {
                matches!(
                    a,
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Lambda(_)))
                )
            })
        {
            return refused("a lambda function");
        }
        ident.value = ident.value.to_lowercase();
        ident.quote_style = None;
        let name = ident.value.clone();
        if NOT_OF_THE_ROW.contains(&name.as_str()) {
            return refused("a function that does not depend on the row alone");
        }
        if let Some(now) = self.now_like(&name, &function.args) {
            *expr = now;
            return Ok(());
        }
        if let Some(target) = cast_function(&name)
            && let Some([argument]) = arguments(&mut function.args)
        {
            *expr = Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(std::mem::replace(argument, null())),
                data_type: target,
                array: false,
                format: None,
            };
            return Ok(());
        }
        if let "isnull" | "isnotnull" = name.as_str()
            && let Some([argument]) = arguments(&mut function.args)
        {
            let inner = Box::new(std::mem::replace(argument, null()));
            *expr = match name.as_str() {
                "isnull" => Expr::IsNull(inner),
                _ => Expr::IsNotNull(inner),
            };
            return Ok(());
        }
        let count = match &function.args {
            FunctionArguments::List(list) => list.args.len(),
            _ => 0,
        };
        if NOT_AS_SPARK
            .iter()
            .any(|(n, from)| *n == name && count >= *from)
        {
            return Err(EngineError::UnknownFunction {
                name,
                at,
                nearest: None,
            });
        }
        match (alias(&name), &mut function.args) {
            (Some(alias), _) => ident.value = alias.to_owned(),
            (None, FunctionArguments::List(list)) => match (name.as_str(), count) {
                // Spark's natural logarithm; DataFusion's has the base 10.
                ("log", 1) => "ln".clone_into(&mut ident.value),
                // Spark replaces every match.
                ("regexp_replace", 3) => {
                    list.args
                        .push(FunctionArg::Unnamed(FunctionArgExpr::Expr(text(
                            "g".to_owned(),
                        ))))
                }
                _ => {}
            },
            _ => {}
        }
        if self.state.scalar_functions().contains_key(&ident.value) {
            return Ok(());
        }
        if self.state.aggregate_functions().contains_key(&name) {
            return refused("an aggregate function");
        }
        if self.state.window_functions().contains_key(&name) {
            return refused("a window function");
        }
        if self.state.higher_order_functions().contains_key(&name) {
            return refused("a lambda function");
        }
        let known = self.state.scalar_functions().keys().map(String::as_str);
        Err(EngineError::UnknownFunction {
            nearest: nearest(&name, known.filter(|f| !f.starts_with("__"))),
            name,
            at,
        })
    }

    /// The constant that a function of the clock stands for in this statement.
    fn now_like(&self, name: &str, args: &FunctionArguments) -> Option<Expr> {
        let none = match args {
            FunctionArguments::None => true,
            FunctionArguments::List(list) => list.args.is_empty(),
            FunctionArguments::Subquery(_) => false,
        };
        if !none {
            return None;
        }
        let zoned = ast::DataType::Timestamp(None, TimezoneInfo::None);
        let data_type = match name {
            "now" | "current_timestamp" => zoned,
            "localtimestamp" => ast::DataType::TimestampNtz(None),
            "current_date" | "curdate" | "today" => ast::DataType::Date,
            _ => return None,
        };
        let now = chrono::DateTime::from_timestamp_millis(self.now)?;
        let format = match data_type {
            ast::DataType::Date => "%Y-%m-%d",
            _ => "%Y-%m-%d %H:%M:%S%.3f",
        };
        Some(Expr::TypedString(TypedString {
            data_type,
            value: Value::SingleQuotedString(now.format(format).to_string()).into(),
            uses_odbc_syntax: false,
        }))
    }
}

/// Spark's names for functions that DataFusion has under another one.
fn alias(name: &str) -> Option<&'static str> {
    Some(match name {
        "rand" => "random",
        "rlike" | "regexp" => "regexp_like",
        "lcase" => "lower",
        "ucase" => "upper",
        "len" => "length",
        "startswith" => "starts_with",
        "endswith" => "ends_with",
        "ifnull" => "nvl",
        "element_at" => ELEMENT_AT,
        _ => return None,
    })
}

/// `int(x)` is `CAST(x AS INT)`.
fn cast_function(name: &str) -> Option<ast::DataType> {
    use ast::DataType as T;
    Some(match name {
        "boolean" => T::Boolean,
        "tinyint" => T::TinyInt(None),
        "smallint" => T::SmallInt(None),
        "int" => T::Int(None),
        "bigint" => T::BigInt(None),
        "float" => T::Float(ast::ExactNumberInfo::None),
        "double" => T::Double(ast::ExactNumberInfo::None),
        "decimal" => T::Decimal(ast::ExactNumberInfo::None),
        "string" => T::String(None),
        "binary" => T::Binary(None),
        "date" => T::Date,
        "timestamp" => T::Timestamp(None, TimezoneInfo::None),
        _ => return None,
    })
}

/// The plain arguments of a call, or `None` where there is anything else.
fn arguments(args: &mut FunctionArguments) -> Option<[&mut Expr; 1]> {
    let FunctionArguments::List(list) = args else {
        return None;
    };
    match list.args.as_mut_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] => Some([argument]),
        _ => None,
    }
}

/// `10L`, `2S`, `1Y`, `1.5BD`, `3D`, `1F`: the tokenizer takes them for names that begin with a digit.
fn suffixed_number(word: &str) -> Option<Expr> {
    use ast::DataType as T;
    let split = word.find(|c: char| c.is_ascii_alphabetic())?;
    let (digits, suffix) = word.split_at(split);
    partition::parse_decimal(digits, 38, 10)?;
    let data_type = match suffix.to_ascii_uppercase().as_str() {
        "Y" => T::TinyInt(None),
        "S" => T::SmallInt(None),
        "L" => T::BigInt(None),
        "F" => T::Float(ast::ExactNumberInfo::None),
        "D" => T::Double(ast::ExactNumberInfo::None),
        "BD" => return Some(Expr::value(Value::Number(digits.to_owned(), false))),
        _ => return None,
    };
    Some(Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(Expr::value(Value::Number(digits.to_owned(), false))),
        data_type,
        array: false,
        format: None,
    })
}

/// `1.5e3` is exact if 38 digits can hold it, else a double.
fn scientific(digits: &str) -> Expr {
    let exact = (0..=38).find_map(|scale| {
        let value = partition::parse_decimal(digits, 38, scale)?;
        Some(partition::format_decimal(value, scale))
    });
    match exact {
        Some(plain) => Expr::value(Value::Number(plain, false)),
        None => Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(text(digits.to_owned())),
            data_type: ast::DataType::Double(ast::ExactNumberInfo::None),
            array: false,
            format: None,
        },
    }
}

/// Makes `a AND b AND c …` a tree of logarithmic depth: the parser's is as deep as it is long.
fn balance(expr: &mut Expr) {
    let Expr::BinaryOp { op, .. } = expr else {
        return;
    };
    let op = op.clone();
    let mut operands = Vec::new();
    let mut rest = std::mem::replace(expr, null());
    loop {
        match rest {
            Expr::BinaryOp {
                left,
                op: same,
                right,
            } if same == op => {
                operands.push(*right);
                rest = *left;
            }
            first => {
                operands.push(first);
                break;
            }
        }
    }
    operands.reverse();
    while operands.len() > 1 {
        let mut halves = operands.into_iter();
        operands = Vec::with_capacity(halves.len().div_ceil(2));
        while let Some(left) = halves.next() {
            operands.push(match halves.next() {
                Some(right) => Expr::BinaryOp {
                    left: Box::new(left),
                    op: op.clone(),
                    right: Box::new(right),
                },
                None => left,
            });
        }
    }
    if let Some(root) = operands.pop() {
        *expr = root;
    }
}

fn take(expr: &mut Box<Expr>) -> Expr {
    std::mem::replace(expr.as_mut(), null())
}

fn null() -> Expr {
    Expr::value(Value::Null)
}

fn text(value: String) -> Expr {
    Expr::value(Value::SingleQuotedString(value))
}

fn not(expr: Expr) -> Expr {
    Expr::UnaryOp {
        op: UnaryOperator::Not,
        expr: Box::new(expr),
    }
}

fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments
                .into_iter()
                .map(|a| FunctionArg::Unnamed(FunctionArgExpr::Expr(a)))
                .collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}
