//! Types of an expression as Delta's users expect them: literals take the type of the column that they meet,
//! text is converted (or refused) while planning, `/` divides, arrays count from 0, time is in microseconds.

use datafusion::arrow::datatypes::{DataType, Schema, TimeUnit, i256};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue, plan_err};
use datafusion::execution::SessionState;
use datafusion::functions::core::expr_fn::nullif;
use datafusion::functions_nested::expr_fn::{array_element, map_extract};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::expr::{Between, InList, Like, ScalarFunction};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable, Operator, TryCast, lit, when,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};

use std::sync::Arc;

use super::error::EngineError;
use super::functions::{ELEMENT_AT, INTEGER_DIVIDE, SUBSCRIPT};
use super::literal::{Fit, fit_number, from_literal_text, number, number_text, plain};

/// Spark functions whose counts are INT, where SQL numbers are BIGINT here.
const INT_ARGUMENTS: [&str; 12] = [
    "add_months",
    "bit_get",
    "date_add",
    "date_sub",
    "elt",
    "factorial",
    "round",
    "sha2",
    "shiftleft",
    "shiftright",
    "shiftrightunsigned",
    "space",
];

/// Rounds in which functions turn into others.
const MAX_ROUNDS: usize = 8;

/// Plans expressions over one schema.
pub(super) struct Typing<'a> {
    state: &'a SessionState,
    schema: &'a DFSchema,
    simplifier: ExprSimplifier,
    context: SimplifyContext,
}

impl<'a> Typing<'a> {
    pub(super) fn new(state: &'a SessionState, schema: &'a DFSchema) -> Self {
        let context = SimplifyContext::builder()
            .with_schema(Arc::new(schema.clone()))
            .with_config_options(Arc::clone(state.config_options()))
            .build();
        Typing {
            state,
            schema,
            simplifier: ExprSimplifier::new(context.clone()),
            context,
        }
    }

    /// The typed form that can be executed.
    ///
    /// # Why not DataFusion's simplifier
    /// Some of its rules (55.2: those that merge IN lists, equalities among them) take NULL for FALSE or TRUE, which
    /// under NOT selects rows that the condition does not: `NOT (x IN (1, 2) AND x IN (3, 4))` for a NULL.
    pub(super) fn plan(&self, expr: Expr) -> Result<Expr> {
        let typed = expr.transform_up(|e| self.node(e))?.data;
        let mut expr = self.simplifier.coerce(typed, self.schema)?;
        // A function may become another one: nvl is coalesce is CASE.
        for _ in 0..MAX_ROUNDS {
            let next = expr.transform_up(|e| self.executable(e))?;
            expr = next.data;
            if !next.transformed {
                break;
            }
        }
        Ok(expr)
    }

    /// One node in the form that is executed: functions expanded, constants evaluated.
    fn executable(&self, expr: Expr) -> Result<Transformed<Expr>> {
        let expr = match expr {
            Expr::ScalarFunction(ScalarFunction { func, args }) => {
                match func.simplify(args, &self.context)? {
                    ExprSimplifyResult::Simplified(expr) => return Ok(Transformed::yes(expr)),
                    ExprSimplifyResult::Original(args) => {
                        Expr::ScalarFunction(ScalarFunction { func, args })
                    }
                }
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let truth = |e: &Expr| match e {
                    Expr::Literal(ScalarValue::Boolean(Some(v)), _) => Some(*v),
                    _ => None,
                };
                // Whatever the other side is, NULL too.
                match (op, truth(&left), truth(&right)) {
                    (Operator::And, Some(true), _) | (Operator::Or, Some(false), _) => {
                        return Ok(Transformed::yes(*right));
                    }
                    (Operator::And, _, Some(true)) | (Operator::Or, _, Some(false)) => {
                        return Ok(Transformed::yes(*left));
                    }
                    (Operator::And, Some(false), _) | (Operator::And, _, Some(false)) => {
                        return Ok(Transformed::yes(lit(false)));
                    }
                    (Operator::Or, Some(true), _) | (Operator::Or, _, Some(true)) => {
                        return Ok(Transformed::yes(lit(true)));
                    }
                    _ => binary(*left, op, *right),
                }
            }
            other => other,
        };
        let constant = matches!(expr, Expr::Literal(..));
        let expr = self.fold(expr)?;
        let folded = !constant && matches!(expr, Expr::Literal(..));
        Ok(Transformed::new(expr, folded, TreeNodeRecursion::Continue))
    }

    /// The same condition as AND and OR over atoms in the forms that statistics can refute. It is true for the
    /// same rows; where it is not, NULL and FALSE may differ.
    pub(super) fn refutable(&self, expr: Expr) -> Result<Expr> {
        let atoms = positive(expr, false);
        Ok(atoms
            .transform_down(|e| match &e {
                Expr::BinaryExpr(BinaryExpr {
                    op: Operator::And | Operator::Or,
                    ..
                }) => Ok(Transformed::no(e)),
                _ => {
                    let atom = match self.day_range(&e)? {
                        Some(range) => range,
                        None if is_plain(&e)? => self.simplifier.simplify(e)?,
                        None => e,
                    };
                    Ok(Transformed::new(atom, true, TreeNodeRecursion::Jump))
                }
            })?
            .data)
    }

    /// `CAST(ts AS DATE) = d` as a range of `ts`, which statistics can refute.
    fn day_range(&self, atom: &Expr) -> Result<Option<Expr>> {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = atom else {
            return Ok(None);
        };
        let (day, op, literal_day) = match (left.as_ref(), right.as_ref(), op.swap()) {
            (Expr::Cast(day), Expr::Literal(value, _), _) => (day, *op, value),
            (Expr::Literal(value, _), Expr::Cast(day), Some(swapped)) => (day, swapped, value),
            _ => return Ok(None),
        };
        let (ScalarValue::Date32(Some(days)), DataType::Timestamp(TimeUnit::Microsecond, zone)) =
            (literal_day, self.type_of(&day.expr)?)
        else {
            return Ok(None);
        };
        let midnight = |days: Option<i32>| {
            let micros = i64::from(days?).checked_mul(86_400_000_000)?;
            Some(literal(ScalarValue::TimestampMicrosecond(
                Some(micros),
                zone.clone(),
            )))
        };
        let (Some(start), Some(end)) = (midnight(Some(*days)), midnight(days.checked_add(1)))
        else {
            return Ok(None);
        };
        let ts = || day.expr.as_ref().clone();
        Ok(match op {
            Operator::Eq => Some(ts().gt_eq(start).and(ts().lt(end))),
            Operator::NotEq => Some(ts().lt(start).or(ts().gt_eq(end))),
            Operator::Lt => Some(ts().lt(start)),
            Operator::LtEq => Some(ts().lt(end)),
            Operator::Gt => Some(ts().gt_eq(end)),
            Operator::GtEq => Some(ts().gt_eq(start)),
            _ => None,
        })
    }

    /// The executable form of a planned expression.
    pub(super) fn physical(&self, expr: &Expr) -> Result<Arc<dyn PhysicalExpr>> {
        physical(expr, self.schema)
    }

    /// One node, whose children are done.
    fn node(&self, expr: Expr) -> Result<Transformed<Expr>> {
        let expr = match expr {
            Expr::Alias(alias) => *alias.expr,
            Expr::Literal(value, _) => return Ok(Transformed::yes(literal(plain(value)))),
            Expr::ScalarFunction(call) => self.function(call)?,
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => self.binary(*left, op, *right)?,
            Expr::InList(list) => self.in_list(list)?,
            Expr::Between(between) if !between.expr.is_volatile() => self.between(between)?,
            other => other,
        };
        let expr = self.fold(expr)?;
        Ok(Transformed::yes(self.in_micros(expr)?))
    }

    fn type_of(&self, expr: &Expr) -> Result<DataType> {
        expr.get_type(self.schema)
    }

    /// Evaluates what has no columns, so that a bad constant is refused now and a good one can prune.
    fn fold(&self, expr: Expr) -> Result<Expr> {
        if matches!(expr, Expr::Literal(..) | Expr::Column(_)) || expr.is_volatile_node() {
            return Ok(expr);
        }
        let mut constant = true;
        expr.apply_children(|child| {
            constant &= matches!(child, Expr::Literal(..));
            Ok(if constant {
                TreeNodeRecursion::Continue
            } else {
                TreeNodeRecursion::Stop
            })
        })?;
        if !constant {
            return Ok(expr);
        }
        let coerced = self.simplifier.coerce(expr, self.schema)?;
        let simple = self.simplifier.simplify(coerced)?;
        if let Expr::Literal(value, _) = simple {
            return Ok(literal(plain(value)));
        }
        let row = datafusion::arrow::array::RecordBatch::try_new_with_options(
            Arc::new(Schema::empty()),
            Vec::new(),
            &datafusion::arrow::array::RecordBatchOptions::new().with_row_count(Some(1)),
        )?;
        let value = physical(&simple, &DFSchema::empty())?
            .evaluate(&row)?
            .into_array(1)?;
        Ok(literal(plain(ScalarValue::try_from_array(&value, 0)?)))
    }

    /// Some functions answer in nanoseconds, which hold only 1677 to 2262.
    fn in_micros(&self, expr: Expr) -> Result<Expr> {
        if !matches!(
            expr,
            Expr::Literal(..)
                | Expr::ScalarFunction(_)
                | Expr::Cast(_)
                | Expr::TryCast(_)
                | Expr::Case(_)
        ) {
            return Ok(expr);
        }
        Ok(match self.type_of(&expr) {
            Ok(DataType::Timestamp(unit, zone)) if unit != TimeUnit::Microsecond => {
                let micros = DataType::Timestamp(TimeUnit::Microsecond, zone);
                if matches!(expr, Expr::Literal(..)) {
                    return self.fold(cast(expr, micros));
                }
                cast(expr, micros)
            }
            _ => expr,
        })
    }

    fn function(&self, mut call: ScalarFunction) -> Result<Expr> {
        let two = |call: ScalarFunction| <[Expr; 2]>::try_from(call.args).ok();
        match call.func.name() {
            SUBSCRIPT => match two(call) {
                Some([base, key]) => self.subscript(base, key, false),
                None => plan_err!("a subscript needs one index"),
            },
            ELEMENT_AT => match two(call) {
                Some([base, key]) => self.subscript(base, key, true),
                None => plan_err!("element_at needs two arguments"),
            },
            INTEGER_DIVIDE => match two(call) {
                Some([left, right]) => {
                    let (left, right) = (cast(left, DataType::Int64), cast(right, DataType::Int64));
                    self.divide(left, Operator::Divide, right, false)
                }
                None => plan_err!("DIV needs two operands"),
            },
            name if INT_ARGUMENTS.contains(&name) => {
                for argument in call.args.iter_mut().skip(usize::from(name != "space")) {
                    if let Expr::Literal(ScalarValue::Int64(Some(value)), _) = argument
                        && let Ok(value) = i32::try_from(*value)
                    {
                        *argument = lit(value);
                    }
                }
                Ok(Expr::ScalarFunction(call))
            }
            _ => Ok(Expr::ScalarFunction(call)),
        }
    }

    fn subscript(&self, base: Expr, key: Expr, from_one: bool) -> Result<Expr> {
        match self.type_of(&base)? {
            DataType::Map(entries, _) => {
                let key = match entries.data_type() {
                    DataType::Struct(fields) => match fields.first() {
                        Some(field) => cast(key, field.data_type().clone()),
                        None => key,
                    },
                    _ => key,
                };
                Ok(array_element(
                    map_extract(base, self.fold(key)?),
                    lit(1_i64),
                ))
            }
            DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => {
                if from_one {
                    return Ok(array_element(base, key));
                }
                let key = self.fold(cast(key, DataType::Int64))?;
                match key.as_literal() {
                    Some(ScalarValue::Int64(Some(at))) if *at >= 0 => {
                        Ok(array_element(base, lit(at.saturating_add(1))))
                    }
                    Some(_) => Ok(array_element(base, lit(ScalarValue::Int64(None)))),
                    None => when(
                        key.clone().gt_eq(lit(0_i64)),
                        array_element(base, key + lit(1_i64)),
                    )
                    .end(),
                }
            }
            DataType::Struct(_) => Ok(datafusion::functions::core::expr_fn::get_field(
                base,
                match key.as_literal().and_then(|k| k.try_as_str().flatten()) {
                    Some(name) => name.to_owned(),
                    None => return plan_err!("a field of a struct must be named"),
                },
            )),
            other => plan_err!("{other} has no elements"),
        }
    }

    fn binary(&self, left: Expr, op: Operator, right: Expr) -> Result<Expr> {
        match op {
            Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom => self.compare(left, op, right),
            Operator::Divide => self.divide(left, op, right, true),
            Operator::Modulo => self.divide(left, op, right, false),
            _ => Ok(binary(left, op, right)),
        }
    }

    /// A division by zero is NULL, as in Spark without ANSI mode; `/` of integers is a fraction.
    fn divide(&self, left: Expr, op: Operator, right: Expr, fraction: bool) -> Result<Expr> {
        let types = (self.type_of(&left)?, self.type_of(&right)?);
        if !types.0.is_numeric() || !types.1.is_numeric() {
            return Ok(binary(left, op, right));
        }
        let (left, right, divisor_type) =
            if fraction && types.0.is_integer() && types.1.is_integer() {
                let double = DataType::Float64;
                (
                    self.fold(cast(left, double.clone()))?,
                    self.fold(cast(right, double.clone()))?,
                    double,
                )
            } else {
                (left, right, types.1)
            };
        let zero = ScalarValue::new_zero(&divisor_type)?;
        let right = match right.as_literal() {
            Some(value) if value.is_null() => right,
            Some(value) if plain(value.clone()) == zero => {
                literal(ScalarValue::try_new_null(&divisor_type)?)
            }
            Some(_) => right,
            None => nullif(self.positive_zero(right)?, literal(zero)),
        };
        Ok(binary(left, op, right))
    }

    fn compare(&self, left: Expr, op: Operator, right: Expr) -> Result<Expr> {
        let (left, right) = self.align(left, right)?;
        Ok(binary(left, op, right))
    }

    fn between(&self, between: Between) -> Result<Expr> {
        let Between {
            expr,
            negated,
            low,
            high,
        } = between;
        Ok(if negated {
            self.compare(*expr.clone(), Operator::Lt, *low)?
                .or(self.compare(*expr, Operator::Gt, *high)?)
        } else {
            self.compare(*expr.clone(), Operator::GtEq, *low)?
                .and(self.compare(*expr, Operator::LtEq, *high)?)
        })
    }

    /// Values that the column's type cannot hold are left out: they are equal to no row.
    fn in_list(&self, list: InList) -> Result<Expr> {
        let InList {
            expr,
            list,
            negated,
        } = list;
        let target = self.type_of(&expr)?;
        let mut kept = Vec::with_capacity(list.len());
        let mut misfit = None;
        for item in list {
            let Some(value) = item.as_literal() else {
                kept.push(item);
                continue;
            };
            refuse_days_as_numbers(&target, &value.data_type())?;
            match (&target, value) {
                (_, value) if value.is_null() => kept.push(item),
                (DataType::Utf8, value) if value.data_type().is_numeric() => {
                    kept.push(lit(number_text(value)));
                }
                _ => match self.fit(value, &target, &expr)? {
                    Fit::Exact(value) => kept.push(literal(value)),
                    Fit::Beyond(..) => misfit = Some(item),
                    Fit::Other => kept.push(item),
                },
            }
        }
        if kept.is_empty()
            && let Some(item) = misfit
        {
            let op = if negated {
                Operator::NotEq
            } else {
                Operator::Eq
            };
            return self.compare(*expr, op, item);
        }
        let expr = self.positive_zero(*expr)?;
        Ok(Expr::InList(InList::new(Box::new(expr), kept, negated)))
    }

    /// Both sides of a comparison in types that compare as Spark compares them.
    fn align(&self, left: Expr, right: Expr) -> Result<(Expr, Expr)> {
        let (left, right) = match (left.as_literal().cloned(), right.as_literal().cloned()) {
            (None, Some(value)) => self.align_literal(left, value)?,
            (Some(value), None) => {
                let (right, left) = self.align_literal(right, value)?;
                (left, right)
            }
            _ => (left, right),
        };
        let types = (self.type_of(&left)?, self.type_of(&right)?);
        refuse_days_as_numbers(&types.0, &types.1)?;
        let (left, right) = match &types {
            (DataType::Utf8, other) if *other != DataType::Utf8 => (from_text(left, other), right),
            (other, DataType::Utf8) if *other != DataType::Utf8 => (left, from_text(right, other)),
            (DataType::Date32, stamp @ DataType::Timestamp(..)) => {
                (cast(left, stamp.clone()), right)
            }
            (stamp @ DataType::Timestamp(..), DataType::Date32) => {
                (left, cast(right, stamp.clone()))
            }
            _ => (left, right),
        };
        Ok((self.positive_zero(left)?, self.positive_zero(right)?))
    }

    fn align_literal(&self, other: Expr, value: ScalarValue) -> Result<(Expr, Expr)> {
        let target = self.type_of(&other)?;
        Ok(match self.fit(&value, &target, &other)? {
            Fit::Exact(value) => (other, literal(value)),
            Fit::Beyond((digits, 0))
                if target.is_integer()
                    && let Ok(digits) = i64::try_from(digits) =>
            {
                (other, lit(digits))
            }
            Fit::Beyond(number) => {
                // Exact in 256 bits, whatever the number: no row is equal, the order is right.
                let (digits, scale) = number;
                let scale = match target {
                    DataType::Decimal128(_, s) => scale.max(s),
                    _ => scale,
                };
                let wide = DataType::Decimal256(76, scale);
                let mut unscaled = i256::from_i128(digits);
                for _ in number.1..scale {
                    unscaled = unscaled.wrapping_mul(i256::from_i128(10));
                }
                (
                    cast(other, wide),
                    literal(ScalarValue::Decimal256(Some(unscaled), 76, scale)),
                )
            }
            Fit::Other => (other, literal(value)),
        })
    }

    /// The literal in the type of what it is compared with.
    fn fit(&self, value: &ScalarValue, target: &DataType, other: &Expr) -> Result<Fit> {
        if value.is_null() {
            return Ok(Fit::Other);
        }
        if let Some(text) = value.try_as_str().flatten() {
            return match from_literal_text(text, target) {
                Some(fit) => Ok(fit),
                None => Err(DataFusionError::External(Box::new(EngineError::Literal {
                    column: describe(other),
                    text: text.to_owned(),
                    expected: delta_name(target),
                }))),
            };
        }
        Ok(match (number(value), target, value) {
            (Some(number), ..) => fit_number(number, target),
            (_, DataType::Timestamp(unit, zone), ScalarValue::TimestampMicrosecond(v, _))
                if *unit == TimeUnit::Microsecond =>
            {
                Fit::Exact(ScalarValue::TimestampMicrosecond(*v, zone.clone()))
            }
            (_, DataType::Timestamp(unit, zone), ScalarValue::Date32(Some(days)))
                if *unit == TimeUnit::Microsecond =>
            {
                let micros = i64::from(*days).checked_mul(86_400_000_000);
                Fit::Exact(ScalarValue::TimestampMicrosecond(micros, zone.clone()))
            }
            _ => Fit::Other,
        })
    }

    /// A computed -0.0 becomes 0.0: Spark's comparisons don't tell them apart, Arrow's do. Columns and
    /// literals are normal already.
    fn positive_zero(&self, expr: Expr) -> Result<Expr> {
        if matches!(expr, Expr::Literal(..)) || path_of(&expr).is_some() {
            return Ok(expr);
        }
        Ok(match self.type_of(&expr)? {
            DataType::Float64 => binary(expr, Operator::Plus, lit(0.0_f64)),
            DataType::Float32 => binary(expr, Operator::Plus, lit(0.0_f32)),
            _ => expr,
        })
    }

    /// Plans a syntax tree.
    pub(super) fn logical(&self, tree: datafusion::sql::sqlparser::ast::Expr) -> Result<Expr> {
        let tree = datafusion::sql::sqlparser::ast::ExprWithAlias {
            expr: tree,
            alias: None,
        };
        self.state
            .create_logical_expr_from_sql_expr(tree, self.schema)
    }
}

/// Pushes NOT down to the atoms.
fn positive(expr: Expr, negate: bool) -> Expr {
    match expr {
        Expr::Not(inner) => positive(*inner, !negate),
        Expr::IsTrue(inner) if !negate => positive(*inner, false),
        Expr::IsFalse(inner) if !negate => positive(*inner, true),
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::And | Operator::Or),
            right,
        }) => {
            let op = match (op, negate) {
                (Operator::And, false) | (Operator::Or, true) => Operator::And,
                _ => Operator::Or,
            };
            binary(positive(*left, negate), op, positive(*right, negate))
        }
        expr if !negate => expr,
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.negate().is_some() => {
            binary(*left, op.negate().unwrap_or(op), *right)
        }
        Expr::InList(list) => Expr::InList(InList {
            negated: !list.negated,
            ..list
        }),
        Expr::Like(like) => Expr::Like(Like {
            negated: !like.negated,
            ..like
        }),
        Expr::IsNull(inner) => Expr::IsNotNull(inner),
        Expr::IsNotNull(inner) => Expr::IsNull(inner),
        other => Expr::Not(Box::new(other)),
    }
}

/// Whether the simplifier gets the atom right: not with a condition inside (NULL taken for FALSE), nor with a
/// cast (`CAST(x AS INT) = 1` becomes `x = 1`, which 1.5 is not). Statistics are compared through casts anyway.
fn is_plain(atom: &Expr) -> Result<bool> {
    let mut plain = true;
    atom.apply_children(|child| {
        child.apply(|e| {
            plain &= !matches!(
                e,
                Expr::InList(_)
                    | Expr::Not(_)
                    | Expr::Case(_)
                    | Expr::Cast(_)
                    | Expr::TryCast(_)
                    | Expr::BinaryExpr(BinaryExpr {
                        op: Operator::And | Operator::Or,
                        ..
                    })
            );
            Ok(if plain {
                TreeNodeRecursion::Continue
            } else {
                TreeNodeRecursion::Stop
            })
        })
    })?;
    Ok(plain)
}

/// The executable form of an expression over `schema`.
pub(super) fn physical(expr: &Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
    create_physical_expr(
        expr,
        schema,
        &ExecutionProps::new(),
        &datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext::default(),
    )
}

/// The column and the struct fields below it, if the expression is nothing but that.
pub(super) fn path_of(expr: &Expr) -> Option<Vec<String>> {
    match expr {
        Expr::Column(column) => Some(vec![column.name.clone()]),
        Expr::ScalarFunction(call) if call.func.name() == "get_field" => {
            let (base, fields) = call.args.split_first()?;
            let mut path = path_of(base)?;
            for field in fields {
                path.push(field.as_literal()?.try_as_str()??.to_owned());
            }
            Some(path)
        }
        _ => None,
    }
}

fn describe(expr: &Expr) -> String {
    path_of(expr).map_or_else(|| expr.to_string(), |path| path.join("."))
}

fn literal(value: ScalarValue) -> Expr {
    Expr::Literal(value, None)
}

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

fn cast(expr: Expr, to: DataType) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr), to))
}

/// Arrow takes a number for days or microseconds since 1970; nobody who writes one means that.
fn refuse_days_as_numbers(a: &DataType, b: &DataType) -> Result<()> {
    let time = |t: &DataType| matches!(t, DataType::Date32 | DataType::Timestamp(..));
    if (time(a) && b.is_numeric()) || (a.is_numeric() && time(b)) {
        return plan_err!("{} and {} cannot be compared", delta_name(a), delta_name(b));
    }
    Ok(())
}

/// A text column compared with something else: text that is no such value is NULL, never an error.
fn from_text(expr: Expr, other: &DataType) -> Expr {
    let to = match other {
        t if t.is_integer() => DataType::Int64,
        t if t.is_numeric() => DataType::Float64,
        DataType::Date32 | DataType::Timestamp(..) | DataType::Boolean => other.clone(),
        _ => return expr,
    };
    if matches!(expr, Expr::Literal(..)) {
        return expr;
    }
    Expr::TryCast(TryCast::new(Box::new(expr), to))
}

/// The type's name in Delta's words.
pub(super) fn delta_name(data_type: &DataType) -> String {
    crate::schema::from_arrow_type(data_type)
        .map_or_else(|_| data_type.to_string(), |t| t.to_string())
}
