//! Spark functions that neither DataFusion nor datafusion-spark has: parts of a date, and placeholders that are
//! replaced while an expression is planned.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::functions::datetime::date_part;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};

/// `base[key]`, replaced by `typing` once the type of `base` is known: arrays count from 0 as in Spark.
pub(super) const SUBSCRIPT: &str = "__subscript";
/// Spark's `element_at`: arrays count from 1, a map gives the value.
pub(super) const ELEMENT_AT: &str = "__element_at";
/// `a DIV b`.
pub(super) const INTEGER_DIVIDE: &str = "__integer_divide";
/// Hides its argument from the pruning rules; never evaluated.
pub(super) const OPAQUE: &str = "__opaque";

/// All of them, for the session.
pub(super) fn all() -> Vec<Arc<ScalarUDF>> {
    let mut all: Vec<_> = [
        ("year", "year", 0),
        ("quarter", "quarter", 0),
        ("month", "month", 0),
        ("day", "day", 0),
        ("dayofmonth", "day", 0),
        ("dayofyear", "doy", 0),
        ("weekofyear", "week", 0),
        // Spark counts from 1 = Sunday, date_part from 0 = Sunday.
        ("dayofweek", "dow", 1),
        ("hour", "hour", 0),
        ("minute", "minute", 0),
        ("second", "second", 0),
    ]
    .into_iter()
    .map(|(name, part, add)| {
        Arc::new(ScalarUDF::new_from_impl(DatePart {
            name,
            part,
            add,
            signature: Signature::user_defined(Volatility::Immutable),
        }))
    })
    .collect();
    all.extend(
        [SUBSCRIPT, ELEMENT_AT, INTEGER_DIVIDE]
            .map(|name| Arc::new(ScalarUDF::new_from_impl(Placeholder::new(name, 2)))),
    );
    all
}

/// The function that hides its argument from the pruning rules.
pub(super) fn opaque() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Placeholder::new(OPAQUE, 1)))
}

/// `year(x)` and its like. Simplifies to DataFusion's `date_part`, whose comparisons with a year prune.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DatePart {
    name: &'static str,
    part: &'static str,
    add: i32,
    signature: Signature,
}

impl ScalarUDFImpl for DatePart {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int32)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            [t @ (DataType::Date32 | DataType::Timestamp(..))] => Ok(vec![t.clone()]),
            [DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null] => {
                Ok(vec![DataType::Timestamp(TimeUnit::Microsecond, None)])
            }
            [other] => plan_err!("{} needs a date or a timestamp, not {other}", self.name),
            other => plan_err!("{} needs one argument, not {}", self.name, other.len()),
        }
    }

    fn simplify(
        &self,
        mut arguments: Vec<Expr>,
        _info: &SimplifyContext,
    ) -> Result<ExprSimplifyResult> {
        arguments.insert(0, lit(self.part));
        let part = Expr::ScalarFunction(ScalarFunction::new_udf(date_part(), arguments));
        Ok(ExprSimplifyResult::Simplified(match self.add {
            0 => part,
            add => part + lit(add),
        }))
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("{} was not simplified", self.name)
    }
}

/// Stands for something else until the expression is planned.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Placeholder {
    name: &'static str,
    signature: Signature,
}

impl Placeholder {
    fn new(name: &'static str, arguments: usize) -> Self {
        Placeholder {
            name,
            signature: Signature::any(arguments, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for Placeholder {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments.first().cloned().unwrap_or(DataType::Null))
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("{} was not replaced", self.name)
    }
}
