//! The one DataFusion session: settings, types and functions as Delta's users expect them from Spark.

use std::sync::{Arc, OnceLock};

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::Result;
use datafusion::config::Dialect;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, TypePlanner};
use datafusion::prelude::SessionConfig;
use datafusion::sql::sqlparser::ast;

use super::functions;

/// Spark functions that would hide a DataFusion one that we want: `date_part` is known to the pruning rules,
/// the others are ours.
const KEEP_OURS: [&str; 4] = ["date_part", "hour", "minute", "second"];

/// The shared session, made at the first question.
pub(super) fn state() -> &'static SessionState {
    static STATE: OnceLock<SessionState> = OnceLock::new();
    STATE.get_or_init(build)
}

/// Functions that make any amount of data out of two numbers: one row of a predicate could take all memory.
const UNBOUNDED: [&str; 12] = [
    "range",
    "generate_series",
    "sequence",
    "array_repeat",
    "list_repeat",
    "array_resize",
    "list_resize",
    "repeat",
    "lpad",
    "rpad",
    "space",
    "make_list",
];

fn build() -> SessionState {
    let mut config = SessionConfig::new();
    let options = config.options_mut();
    options.sql_parser.enable_ident_normalization = false;
    options.sql_parser.parse_float_as_decimal = true;
    options.sql_parser.map_string_types_to_utf8view = false;
    options.sql_parser.dialect = Dialect::Databricks;
    options.execution.time_zone = Some("UTC".to_owned());
    let mut builder = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .with_type_planner(Arc::new(DeltaTypes));
    builder
        .scalar_functions()
        .get_or_insert_default()
        .extend(spark_functions().chain(functions::all()));
    builder
        .scalar_functions()
        .get_or_insert_default()
        .retain(|f| !UNBOUNDED.contains(&f.name()));
    builder
        .expr_planners()
        .get_or_insert_default()
        .insert(0, Arc::new(SparkSyntax));
    builder.build()
}

fn spark_functions() -> impl Iterator<Item = Arc<datafusion::logical_expr::ScalarUDF>> {
    datafusion_spark::all_default_scalar_functions()
        .into_iter()
        .filter(|f| !KEEP_OURS.contains(&f.name()))
}

/// `SUBSTRING(x FROM 1)` counts as Spark's `substring` does.
#[derive(Debug)]
struct SparkSyntax;

impl ExprPlanner for SparkSyntax {
    fn plan_substring(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(Expr::ScalarFunction(
            ScalarFunction::new_udf(datafusion_spark::function::string::substring(), args),
        )))
    }
}

/// SQL type names to the Arrow types that `schema::arrow_type` uses, so that casts never leave microseconds.
#[derive(Debug)]
struct DeltaTypes;

impl TypePlanner for DeltaTypes {
    fn plan_type_field(&self, sql: &ast::DataType) -> Result<Option<FieldRef>> {
        Ok(delta_type(sql).map(|t| Arc::new(Field::new("", t, true))))
    }
}

fn delta_type(sql: &ast::DataType) -> Option<DataType> {
    use ast::{DataType as Sql, TimezoneInfo};
    let micros = |zone: Option<&str>| {
        DataType::Timestamp(TimeUnit::Microsecond, zone.map(std::convert::Into::into))
    };
    Some(match sql {
        Sql::String(_) | Sql::Text | Sql::Varchar(_) | Sql::Char(_) => DataType::Utf8,
        Sql::Float(_) | Sql::Real => DataType::Float32,
        Sql::Binary(_) => DataType::Binary,
        Sql::Decimal(info) | Sql::Dec(info) | Sql::Numeric(info) => {
            let (precision, scale) = match info {
                ast::ExactNumberInfo::None => (10, 0),
                ast::ExactNumberInfo::Precision(p) => (*p, 0),
                ast::ExactNumberInfo::PrecisionAndScale(p, s) => (*p, *s),
            };
            let precision = u8::try_from(precision)
                .ok()
                .filter(|p| (1..=38).contains(p))?;
            let scale = i8::try_from(scale).ok().filter(|s| *s >= 0)?;
            DataType::Decimal128(precision, scale)
        }
        Sql::Timestamp(_, TimezoneInfo::WithoutTimeZone) | Sql::TimestampNtz(_) => micros(None),
        Sql::Timestamp(..) => micros(Some("UTC")),
        Sql::Custom(name, _) => match name.to_string().to_ascii_lowercase().as_str() {
            "byte" => DataType::Int8,
            "short" => DataType::Int16,
            "long" => DataType::Int64,
            "timestamp_ltz" => micros(Some("UTC")),
            "timestamp_ntz" => micros(None),
            _ => return None,
        },
        _ => return None,
    })
}
