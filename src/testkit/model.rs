//! A table as it is meant: rows with ids, and statements that change them one after the other. Knows no files.

use std::collections::{BTreeMap, BTreeSet};

use crate::table::Level;

/// A row. No two have one id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) id: i64,
    pub(crate) k: i64,
    /// The partition, in tables that have some.
    pub(crate) p: char,
    /// What whoever wrote it has counted.
    pub(crate) n: i64,
}

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pred {
    All,
    K(i64),
    Below(i64),
    P(char),
    Both(char, i64),
    Ids(BTreeSet<i64>),
}

impl Pred {
    pub(crate) fn selects(&self, row: &Row) -> bool {
        match self {
            Pred::All => true,
            Pred::K(k) => row.k == *k,
            Pred::Below(k) => row.k < *k,
            Pred::P(p) => row.p == *p,
            Pred::Both(p, k) => row.p == *p && row.k == *k,
            Pred::Ids(ids) => ids.contains(&row.id),
        }
    }

    /// Whether a partition may hold rows that it selects.
    pub(crate) fn may_select(&self, partition: char) -> bool {
        match self {
            Pred::P(p) | Pred::Both(p, _) => *p == partition,
            Pred::All | Pred::K(_) | Pred::Below(_) | Pred::Ids(_) => true,
        }
    }

    pub(crate) fn sql(&self) -> String {
        match self {
            Pred::All => "TRUE".to_owned(),
            Pred::K(k) => format!("k = {k}"),
            Pred::Below(k) => format!("k < {k}"),
            Pred::P(p) => format!("p = '{p}'"),
            Pred::Both(p, k) => format!("p = '{p}' AND k = {k}"),
            Pred::Ids(ids) => {
                let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
                format!("id IN ({})", ids.join(", "))
            }
        }
    }
}

/// What a client wants of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Statement {
    /// A blind append.
    Append(Vec<Row>),
    Delete(Pred),
    /// Rows of one file go, those of its successor come.
    Replace {
        gone: BTreeSet<i64>,
        rows: Vec<Row>,
    },
    /// Counts rows, and writes one that says how many they were.
    Count {
        of: Pred,
        row: Row,
    },
    /// Changes the metadata; may have counted every row before.
    Alter {
        mark: i64,
        counted: Option<u64>,
    },
    /// Moves rows, or renames files.
    Rearrange,
}

impl Statement {
    pub(crate) fn rows(&self) -> &[Row] {
        match self {
            Statement::Append(rows) | Statement::Replace { rows, .. } => rows,
            Statement::Count { row, .. } => std::slice::from_ref(row),
            Statement::Delete(_) | Statement::Alter { .. } | Statement::Rearrange => &[],
        }
    }

    /// The rows that it reads.
    pub(crate) fn reads(&self) -> Option<Pred> {
        match self {
            Statement::Delete(pred) | Statement::Count { of: pred, .. } => Some(pred.clone()),
            Statement::Replace { gone, .. } => Some(Pred::Ids(gone.clone())),
            Statement::Alter { counted, .. } => counted.map(|_| Pred::All),
            Statement::Append(_) | Statement::Rearrange => None,
        }
    }

    pub(crate) fn is_append(&self) -> bool {
        matches!(self, Statement::Append(_))
    }

    pub(crate) fn is_alter(&self) -> bool {
        matches!(self, Statement::Alter { .. })
    }
}

/// What a table holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) rows: BTreeMap<i64, Row>,
    /// Who changed the metadata last.
    pub(crate) mark: i64,
    /// Last transaction of each application.
    pub(crate) apps: BTreeMap<String, i64>,
    pub(crate) level: Level,
}

impl State {
    /// Runs a statement.
    ///
    /// # Errors
    /// Why it can't have run here with the outcome that it had.
    pub(crate) fn run(
        &mut self,
        statement: &Statement,
        app: Option<&(String, i64)>,
    ) -> Result<(), String> {
        if let Some((app, version)) = app {
            let known = self.apps.insert(app.clone(), *version);
            if known.is_some_and(|known| known >= *version) {
                return Err(format!("transaction {version} of {app} is run twice"));
            }
        }
        match statement {
            Statement::Append(_) | Statement::Rearrange => {}
            Statement::Delete(pred) => self.rows.retain(|_, row| !pred.selects(row)),
            Statement::Replace { gone, .. } => {
                for id in gone {
                    if self.rows.remove(id).is_none() {
                        return Err(format!("row {id} of the replaced file is not there"));
                    }
                }
            }
            Statement::Count { of, row } => {
                let found = self.count(of);
                if found != row.n {
                    return Err(format!("{} are {found} rows, not {}", of.sql(), row.n));
                }
            }
            Statement::Alter { mark, counted } => {
                let found = self.rows.len() as u64;
                if counted.is_some_and(|counted| counted != found) {
                    return Err(format!("there are {found} rows, not {counted:?}"));
                }
                self.mark = *mark;
            }
        }
        for row in statement.rows() {
            if self.rows.insert(row.id, *row).is_some() {
                return Err(format!("row {} comes twice", row.id));
            }
        }
        Ok(())
    }

    pub(crate) fn count(&self, of: &Pred) -> i64 {
        let found = self.rows.values().filter(|row| of.selects(row)).count();
        i64::try_from(found).unwrap()
    }

    /// Where two states differ, but for the level.
    pub(crate) fn differs(&self, other: &State) -> Option<String> {
        if self.rows != other.rows {
            let only = |a: &State, b: &State| {
                let ids = a
                    .rows
                    .iter()
                    .filter(|(id, row)| b.rows.get(id) != Some(row));
                ids.map(|(id, _)| *id).collect::<Vec<_>>()
            };
            let (more, less) = (only(self, other), only(other, self));
            return Some(format!("rows {more:?} are too many, {less:?} are missing"));
        }
        if self.mark != other.mark {
            return Some(format!(
                "metadata is that of {}, not of {}",
                self.mark, other.mark
            ));
        }
        (self.apps != other.apps).then(|| format!("{:?}, not {:?}", self.apps, other.apps))
    }
}
