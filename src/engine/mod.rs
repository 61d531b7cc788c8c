//! Expressions over rows and over file statistics. The only place that knows DataFusion; others ask questions
//! in Delta's and Arrow's types. Never lists files, never writes.

mod constraint;
mod dialect;
mod error;
mod expr;
mod functions;
mod literal;
mod normal;
mod prune;
mod prune_stats;
mod resolve;
mod session;
mod spelling;
mod typing;
mod words;

pub use constraint::Constraints;
pub use dialect::DeltaDialect;
pub use error::{EngineError, Position};
pub use expr::Predicate;
pub use prune::{Bounds, FileFacts, NoBounds, Verdict};
pub use prune_stats::StatsBounds;
pub use words::{Piece, pieces};
