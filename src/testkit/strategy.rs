//! Clients of one table, which begin, read and commit in turns, through two `Table` objects as two mounts have them.
//! A seed decides about everything: no clock, no dice, one thread but for appends that wait together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::check::{self, Answer, Txn};
use super::dice::Dice;
use super::files::{folder, read_parquet, write_parquet};
use super::model::{Pred, Row, Statement};
use super::observe::{self, Contents, MARK, OWN, Version};
use crate::deletion_vector::RowSet;
use crate::env::Env;
use crate::log::{Action, Add, LOG_DIR, LogName, Metadata};
use crate::ops::{self, Append, Delete, OpError, Options, Replaces};
use crate::store::Dir;
use crate::table::{
    Bin, Class, Condition, LiveFile, NAME_TAG, Operation, Outcome, ReadSet, Reads, Rows, Snapshot,
    Source, Staged, Table, TableError, Touched,
};

const PARTITIONS: [char; 2] = ['a', 'b'];

/// What a run is about. All of it follows from the seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) vectors: bool,
    pub(crate) partitioned: bool,
    pub(crate) serializable: bool,
    /// Row ids and in-commit timestamps.
    pub(crate) modern: bool,
    /// A checkpoint after so many versions.
    pub(crate) interval: Option<u64>,
    /// The files are real ones, and the operations those of users. Else nobody looks into a file: quicker by far.
    pub(crate) real: bool,
    pub(crate) clients: usize,
    pub(crate) transactions: usize,
}

impl Shape {
    fn roll(dice: &mut Dice, real: bool) -> Self {
        Shape {
            vectors: !dice.one_in(3),
            partitioned: dice.one_in(3),
            serializable: dice.one_in(2),
            modern: !real && dice.one_in(4),
            interval: dice
                .one_in(if real { 10 } else { 60 })
                .then(|| 2 + dice.roll() % 3),
            real,
            clients: 3 + dice.below(2),
            transactions: 6 + dice.below(5),
        }
    }
}

/// A lie of the clients about what they have read, which must not stay unnoticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// What they have counted.
    Counts,
    /// What they delete, apart from the rows themselves.
    Deletes,
    /// The whole table, where it is constrained.
    Constraints,
}

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) shape: Shape,
    pub(crate) history: Vec<Txn>,
    pub(crate) versions: Vec<Version>,
    /// What happened, and how often.
    pub(crate) seen: BTreeMap<String, usize>,
    /// What does not fit.
    pub(crate) fault: Option<String>,
}

/// Plays one seed and checks it.
pub(crate) fn play(seed: u64, real: bool, lie: Option<Lie>) -> Run {
    let mut dice = Dice::new(seed);
    let shape = Shape::roll(&mut dice, real);
    let mut world = World::new(dice, shape, lie);
    let played = world.play();
    world.finish(played)
}

/// What a client is about to do.
#[derive(Debug, Clone)]
enum Wish {
    Append {
        rows: Vec<Row>,
        name: Option<String>,
    },
    Group(Vec<Vec<Row>>),
    Delete {
        pred: Pred,
        options: Options,
        local: bool,
        whole_files: bool,
    },
    Remove(String),
    Rename(String),
    Count {
        of: Pred,
        id: i64,
        p: char,
        k: i64,
    },
    Alter {
        level: bool,
        vectors: bool,
        column: bool,
    },
    Constrain,
    Compact {
        in_order: bool,
    },
}

struct Client {
    /// Which mount it works on.
    table: usize,
    pending: Option<(Wish, Arc<Snapshot>)>,
}

struct World {
    guard: tempfile::TempDir,
    dice: Dice,
    shape: Shape,
    lie: Option<Lie>,
    tables: [Table; 2],
    contents: Arc<Mutex<Contents>>,
    clients: Vec<Client>,
    history: Vec<Txn>,
    /// Files that a transaction of the history has replaced.
    replaced: BTreeMap<usize, String>,
    begun: usize,
    next: i64,
    seen: BTreeMap<String, usize>,
}

pub(crate) fn create(table: &Path, shape: &Shape) {
    std::fs::create_dir(table.join(LOG_DIR)).unwrap();
    let field = |name: &str, kind: &str| json!({"name": name, "type": kind, "nullable": true, "metadata": {}});
    let fields = [
        field("id", "long"),
        field("k", "long"),
        field("n", "long"),
        field("p", "string"),
    ];
    let schema = json!({"type": "struct", "fields": fields}).to_string();
    let mut features = vec!["deletionVectors"];
    let mut configuration =
        BTreeMap::from([("delta.enableDeletionVectors", shape.vectors.to_string())]);
    if shape.modern {
        features.extend(["rowTracking", "domainMetadata", "inCommitTimestamp"]);
        configuration.insert("delta.enableInCommitTimestamps", "true".to_owned());
    }
    if shape.serializable {
        configuration.insert("delta.isolationLevel", "Serializable".to_owned());
    }
    let mut info = json!({"timestamp": 5, "operation": "CREATE TABLE"});
    if shape.modern {
        info["inCommitTimestamp"] = json!(5);
    }
    let partitions: &[&str] = if shape.partitioned { &["p"] } else { &[] };
    let lines = [
        json!({"commitInfo": info}),
        json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"], "writerFeatures": features}}),
        json!({"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}},
            "schemaString": schema, "partitionColumns": partitions, "configuration": configuration}}),
    ];
    let body = lines.map(|line| line.to_string()).join("\n");
    std::fs::write(table.join(LOG_DIR).join(LogName::commit(0)), body).unwrap();
}

impl World {
    fn new(mut dice: Dice, shape: Shape, lie: Option<Lie>) -> Self {
        let guard = folder();
        create(guard.path(), &shape);
        // One for all, so that no id comes twice.
        let env = Env::fixed(1_000_000);
        let open = || Table::open(Dir::open(guard.path()).unwrap(), env.clone()).unwrap();
        let tables = [open(), open()];
        let clients = (0..shape.clients).map(|_| Client {
            table: dice.below(2),
            pending: None,
        });
        World {
            clients: clients.collect(),
            guard,
            dice,
            shape,
            lie,
            tables,
            contents: Arc::default(),
            history: Vec::new(),
            replaced: BTreeMap::new(),
            begun: 0,
            next: 1,
            seen: BTreeMap::new(),
        }
    }

    fn play(&mut self) -> Result<(), String> {
        loop {
            let more = self.begun < self.shape.transactions;
            let ready: Vec<usize> = (0..self.clients.len())
                .filter(|c| more || self.clients[*c].pending.is_some())
                .collect();
            if ready.is_empty() {
                return Ok(());
            }
            let client = *self.dice.pick(&ready);
            match self.clients[client].pending.take() {
                Some((wish, base)) => self.commit(client, wish, &base)?,
                None => self.begin(client),
            }
        }
    }

    // ---- wishes

    fn begin(&mut self, client: usize) {
        let table = &self.tables[self.clients[client].table];
        // Whoever has just looked has what is newest, others what their mount knew.
        let base = match self.dice.one_in(3) {
            true => table.snapshot(),
            false => table.refresh().unwrap(),
        };
        let wish = self.wish(&base);
        self.begun += 1;
        self.clients[client].pending = Some((wish, base));
    }

    fn wish(&mut self, base: &Snapshot) -> Wish {
        if base.version() == 0 {
            return Wish::Append {
                rows: self.rows(),
                name: None,
            };
        }
        match self.dice.below(20) {
            0..5 => {
                let own = self.dice.one_in(4);
                let name = own.then(|| format!("{OWN}{}.parquet", self.dice.below(2)));
                Wish::Append {
                    rows: self.rows(),
                    name,
                }
            }
            5 => Wish::Group((0..2 + self.dice.below(2)).map(|_| self.rows()).collect()),
            6..12 => {
                let app = self.dice.one_in(4);
                let txn = app.then(|| ("job".to_owned(), 1 + (self.dice.roll() % 3).cast_signed()));
                let options = Options {
                    user_metadata: None,
                    txn,
                    retries: if self.dice.one_in(6) { 2 } else { 0 },
                };
                Wish::Delete {
                    pred: self.pred(),
                    options,
                    local: !self.dice.one_in(8),
                    whole_files: self.dice.one_in(2),
                }
            }
            12 => match self.live_path(base) {
                Some(path) => Wish::Remove(path),
                None => Wish::Constrain,
            },
            13 => match self.live_path(base) {
                Some(path) => Wish::Rename(path),
                None => Wish::Constrain,
            },
            14..16 => Wish::Count {
                of: self.pred(),
                id: self.id(),
                p: *self.dice.pick(&PARTITIONS),
                k: self.k(),
            },
            16 => Wish::Alter {
                level: self.dice.one_in(3),
                vectors: self.dice.one_in(3),
                column: self.dice.one_in(3),
            },
            17 => Wish::Constrain,
            _ => Wish::Compact {
                in_order: !self.dice.one_in(4),
            },
        }
    }

    fn id(&mut self) -> i64 {
        self.next += 1;
        self.next
    }

    fn k(&mut self) -> i64 {
        (self.dice.roll() % 4).cast_signed()
    }

    /// Rows of one partition.
    fn rows(&mut self) -> Vec<Row> {
        let p = *self.dice.pick(&PARTITIONS);
        (0..1 + self.dice.below(3))
            .map(|_| Row {
                id: self.id(),
                k: self.k(),
                p,
                n: 0,
            })
            .collect()
    }

    fn pred(&mut self) -> Pred {
        let p = *self.dice.pick(&PARTITIONS);
        match self.dice.below(12) {
            0 => Pred::All,
            1..4 => Pred::K(self.k()),
            4..6 => Pred::Below(self.k()),
            6..8 => Pred::P(p),
            8..10 => Pred::Both(p, self.k()),
            _ => {
                let from = usize::try_from(self.next).unwrap();
                let ids = (0..1 + self.dice.below(3)).map(|_| 1 + self.dice.below(from));
                Pred::Ids(ids.map(|id| i64::try_from(id).unwrap()).collect())
            }
        }
    }

    fn live_path(&mut self, base: &Snapshot) -> Option<String> {
        let live: Vec<String> = base.live_files().map(|f| f.path.key().to_owned()).collect();
        (!live.is_empty()).then(|| self.dice.pick(&live).clone())
    }

    // ---- commits

    fn note(&mut self, what: impl Into<String>) {
        *self.seen.entry(what.into()).or_insert(0) += 1;
    }

    /// Writes down what a client was told.
    fn told(&mut self, client: usize, statement: Statement, read: u64, answer: Answer) -> usize {
        let kind = match &statement {
            Statement::Append(_) => "append",
            Statement::Delete(_) => "delete",
            Statement::Replace { .. } => "replace",
            Statement::Count { .. } => "count",
            Statement::Alter { counted: None, .. } => "alter",
            Statement::Alter { .. } => "constrain",
            Statement::Rearrange => "rearrange",
        };
        match &answer {
            Answer::Version(version) if *version > read + 1 => self.note(format!("{kind} carried")),
            Answer::Version(_) => self.note(format!("{kind} committed")),
            Answer::Nothing => self.note(format!("{kind} had nothing to do")),
            Answer::Refused(why) => self.note(format!("{kind} refused: {why}")),
        }
        self.history.push(Txn {
            client,
            statement,
            app: None,
            read,
            until: read,
            answer,
        });
        self.history.len() - 1
    }

    fn commit(&mut self, client: usize, wish: Wish, base: &Arc<Snapshot>) -> Result<(), String> {
        match wish {
            Wish::Append { rows, name } => self.append(client, rows, name, base)?,
            Wish::Group(all) => self.group(client, all, base)?,
            Wish::Delete {
                pred,
                options,
                local,
                whole_files,
            } if self.shape.real && local => {
                let _ = whole_files;
                self.delete(client, pred, options, base)?;
            }
            Wish::Delete {
                pred,
                options,
                local,
                whole_files,
            } => self.mark(
                client,
                &Marking {
                    pred,
                    options,
                    local,
                    whole_files,
                },
                base,
            )?,
            Wish::Remove(path) => self.remove(client, &path)?,
            Wish::Rename(path) => self.rename(client, &path)?,
            Wish::Count { of, id, p, k } => {
                let n = i64::try_from(self.selected(base, &of).len()).unwrap();
                self.count(client, of, Row { id, k, p, n }, base)?;
            }
            Wish::Alter {
                level,
                vectors,
                column,
            } => {
                let mut metadata = base.metadata().clone();
                if level {
                    let key = "delta.isolationLevel".to_owned();
                    if metadata.configuration.remove(&key).is_none() {
                        metadata
                            .configuration
                            .insert(key, "Serializable".to_owned());
                    }
                }
                if vectors {
                    let key = "delta.enableDeletionVectors";
                    let on = metadata.configuration.get_mut(key).unwrap();
                    *on = (on != "true").to_string();
                }
                if column {
                    let mut schema: Value = serde_json::from_str(&metadata.schema_string).unwrap();
                    let name = format!("c{}", base.version());
                    let fields = schema["fields"].as_array_mut().unwrap();
                    if !fields.iter().any(|f| f["name"] == name.as_str()) {
                        fields.push(
                            json!({"name": name, "type": "long", "nullable": true, "metadata": {}}),
                        );
                    }
                    metadata.schema_string = schema.to_string();
                }
                self.alter(client, metadata, None, base)?;
            }
            Wish::Constrain => {
                let counted = self.selected(base, &Pred::All).len() as u64;
                self.alter(client, base.metadata().clone(), Some(counted), base)?;
            }
            Wish::Compact { in_order } => self.compact(client, in_order, base)?,
        }
        self.learn()?;
        self.checkpoint(client)
    }

    fn table(&self, client: usize) -> &Table {
        &self.tables[self.clients[client].table]
    }

    /// The answer to a transaction that reads: `None` when it has to be staged again.
    fn answer(
        &mut self,
        client: usize,
        staged: &mut Staged,
        base: &Arc<Snapshot>,
    ) -> Result<Answer, String> {
        match self.table(client).commit(base, staged) {
            Ok(Outcome::Committed(after)) => Ok(Answer::Version(after.version())),
            Ok(Outcome::Superseded(_)) => Ok(Answer::Nothing),
            Ok(Outcome::Raced(newest)) => {
                Err(format!("asked to stage again at {}", newest.version()))
            }
            Err(TableError::Conflict(conflict)) => {
                if let crate::table::Reason::Rows = conflict.reason {
                    self.note("rows compared");
                }
                Ok(Answer::Refused(conflict.class.name().to_owned()))
            }
            Err(other) => Err(format!("an unexpected failure: {other}")),
        }
    }

    fn append(
        &mut self,
        client: usize,
        rows: Vec<Row>,
        name: Option<String>,
        base: &Arc<Snapshot>,
    ) -> Result<(), String> {
        if self.shape.real && !self.dice.one_in(3) {
            return self.drop_file(client, rows, name);
        }
        let add = self.write(&rows, name.as_deref());
        let visible = name.map(|name| match self.shape.partitioned {
            true => format!("p={}/{name}", rows[0].p),
            false => name,
        });
        self.append_add(client, rows, &add, visible, base)
    }

    fn append_add(
        &mut self,
        client: usize,
        rows: Vec<Row>,
        add: &Add,
        visible: Option<String>,
        base: &Arc<Snapshot>,
    ) -> Result<(), String> {
        let mut base = Arc::clone(base);
        loop {
            let live = visible.as_deref().and_then(|name| base.named(name));
            let operation = Operation::new("WRITE");
            let mut actions = vec![Action::Add(add.clone())];
            let mut staged = match &live {
                Some(live) => {
                    actions.push(Action::Remove(live.add.to_remove(7, true)));
                    Staged::with(actions, operation, Reads::Restage)
                }
                None => Staged::append(actions, operation),
            };
            staged.absent.clone_from(&visible);
            match self.table(client).commit(&base, &mut staged) {
                Ok(Outcome::Raced(newest)) => {
                    self.note("append raced");
                    base = newest;
                }
                Ok(Outcome::Committed(after)) => {
                    let version = after.version();
                    self.appended(client, rows, live.as_deref(), base.version(), version);
                    return Ok(());
                }
                // It is checked against the new schema, and fits.
                Err(TableError::Conflict(conflict)) if conflict.class == Class::MetadataChanged => {
                    self.note("append restaged");
                    base = self.table(client).refresh().unwrap();
                }
                other => return Err(format!("an append was not committed: {other:?}")),
            }
        }
    }

    fn appended(
        &mut self,
        client: usize,
        rows: Vec<Row>,
        replaced: Option<&LiveFile>,
        read: u64,
        version: u64,
    ) {
        match replaced {
            None => {
                self.told(
                    client,
                    Statement::Append(rows),
                    read,
                    Answer::Version(version),
                );
            }
            Some(live) => {
                let gone = BTreeSet::new();
                let statement = Statement::Replace { gone, rows };
                let index = self.told(client, statement, read, Answer::Version(version));
                self.replaced.insert(index, live.path.key().to_owned());
            }
        }
    }

    /// As users do it.
    fn drop_file(
        &mut self,
        client: usize,
        rows: Vec<Row>,
        name: Option<String>,
    ) -> Result<(), String> {
        let input = tempfile::tempfile_in(self.guard.path()).unwrap();
        // The partition column may be in the file or in the directory.
        let in_file = !self.shape.partitioned || self.dice.one_in(2);
        write_parquet(input.try_clone().unwrap(), &rows, in_file);
        let p = rows[0].p.to_string();
        let fixed = BTreeMap::from([("p".to_owned(), Some(p.clone()))]);
        let fixed = if self.shape.partitioned {
            fixed
        } else {
            BTreeMap::new()
        };
        let stored = self.file_name();
        let visible = name.as_ref().map(|name| match self.shape.partitioned {
            true => format!("p={p}/{name}"),
            false => name.clone(),
        });
        let directory = self.guard.path().to_owned();
        let scratch = move || tempfile::tempfile_in(&directory);
        let request = Append {
            input: &input,
            name: name.as_deref().unwrap_or(&stored),
            fixed: &fixed,
            stored: &stored,
            replaces: visible
                .as_deref()
                .map_or(Replaces::Nothing, Replaces::IfLive),
            scratch: &scratch,
        };
        let before = self.table(client).refresh().unwrap();
        let appended = ops::append(self.table(client), &request)
            .map_err(|e| format!("an append was not committed: {e}"))?;
        let version = appended
            .report
            .version
            .ok_or("an append had nothing to do")?;
        let live = visible.and_then(|name| before.named(&name));
        self.appended(client, rows, live.as_deref(), before.version(), version);
        Ok(())
    }

    /// Appends that wait at the same time.
    fn group(
        &mut self,
        client: usize,
        all: Vec<Vec<Row>>,
        base: &Arc<Snapshot>,
    ) -> Result<(), String> {
        let adds: Vec<Add> = all.iter().map(|rows| self.write(rows, None)).collect();
        let newest = self.table(client).snapshot();
        let table = self.table(client);
        let committed: Vec<Result<Outcome, TableError>> = std::thread::scope(|scope| {
            let turn = table.hold_turn();
            let mut threads = Vec::new();
            for (index, add) in adds.iter().enumerate() {
                // Not all of them have read the same version.
                let base = if index % 2 == 0 { base } else { &newest };
                let mut staged =
                    Staged::append(vec![Action::Add(add.clone())], Operation::new("WRITE"));
                threads.push(scope.spawn(move || table.commit(base, &mut staged)));
                while table.waiting_appends() <= index {
                    std::thread::yield_now();
                }
            }
            drop(turn);
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let mut late = Vec::new();
        for (index, (rows, outcome)) in all.into_iter().zip(committed).enumerate() {
            let base = if index % 2 == 0 { base } else { &newest };
            match outcome {
                Ok(Outcome::Committed(after)) => {
                    let answer = Answer::Version(after.version());
                    self.told(client, Statement::Append(rows), base.version(), answer);
                }
                Err(TableError::Conflict(conflict)) if conflict.class == Class::MetadataChanged => {
                    late.push((rows, adds[index].clone()));
                }
                other => return Err(format!("an append was not committed: {other:?}")),
            }
        }
        for (rows, add) in late {
            let base = self.table(client).refresh().unwrap();
            self.append_add(client, rows, &add, None, &base)?;
        }
        self.note("group");
        Ok(())
    }

    /// DELETE as users do it.
    fn delete(
        &mut self,
        client: usize,
        pred: Pred,
        options: Options,
        base: &Arc<Snapshot>,
    ) -> Result<(), String> {
        let scratch = scratch(self.guard.path());
        let text = pred.sql();
        let request = Delete {
            predicate: &text,
            options: &options,
        };
        let outcome = ops::delete(self.table(client), &request, Some(base), &scratch);
        let answer = match outcome {
            Ok(report) => report.version.map_or(Answer::Nothing, Answer::Version),
            Err(OpError::Table(TableError::Conflict(conflict))) => {
                Answer::Refused(conflict.class.name().to_owned())
            }
            Err(other) => return Err(format!("an unexpected failure: {other}")),
        };
        let index = self.told(client, Statement::Delete(pred), base.version(), answer);
        if options.retries > 0 {
            // It may have read a later version; what was committed says so itself.
            self.history[index].until = self.table(client).snapshot().version();
        }
        self.history[index].app = options.txn;
        Ok(())
    }

    /// DELETE without looking into files.
    fn mark(
        &mut self,
        client: usize,
        marking: &Marking,
        base: &Arc<Snapshot>,
    ) -> Result<(), String> {
        let mut base = Arc::clone(base);
        let mut retries = marking.options.retries;
        loop {
            let known = marking.options.txn.as_ref().is_some_and(|(app, version)| {
                base.txns()
                    .any(|t| t.app_id == *app && t.version >= *version)
            });
            let staged = (!known).then(|| self.stage_marks(marking, &base)).flatten();
            let answer = match staged {
                Some(mut staged) => self.answer(client, &mut staged, &base)?,
                None => Answer::Nothing,
            };
            if matches!(answer, Answer::Refused(_)) && retries > 0 {
                retries -= 1;
                base = self.table(client).refresh().unwrap();
                continue;
            }
            let statement = Statement::Delete(marking.pred.clone());
            let index = self.told(client, statement, base.version(), answer);
            self.history[index].app.clone_from(&marking.options.txn);
            return Ok(());
        }
    }

    fn stage_marks(&mut self, marking: &Marking, base: &Arc<Snapshot>) -> Option<Staged> {
        let on = base
            .metadata()
            .configuration
            .get("delta.enableDeletionVectors");
        let vectors = on.is_some_and(|on| on == "true");
        let mut staged = Staged::with(
            Vec::new(),
            Operation::new("DELETE"),
            Reads::Known(self.read_set(base, &marking.pred, marking.local)),
        );
        if self.lie == Some(Lie::Deletes) {
            staged.reads = Reads::Known(ReadSet::default());
        }
        for file in base.live_files() {
            let dead = self.tables[0].dead_rows(&file).unwrap();
            let physical = self.physical(&file);
            let selected = live(&physical, &dead).filter(|(_, row)| marking.pred.selects(row));
            let rows: RowSet = selected.map(|(position, _)| position).collect();
            if rows.is_empty() {
                continue;
            }
            let all = dead.len() + rows.len() == physical.len() as u64;
            let rows = match all && marking.whole_files {
                true => Rows::All,
                false => Rows::These(rows),
            };
            let gone = match &rows {
                Rows::These(rows) if !vectors && !all => rows | &dead,
                _ => {
                    staged.touched.push(Touched {
                        dead: matches!(rows, Rows::These(_)).then_some(dead),
                        rows,
                        read: RowSet::new(),
                        physical: Some(physical.len() as u64),
                        file,
                    });
                    continue;
                }
            };
            let kept: Vec<Row> = live(&physical, &gone).map(|(_, row)| row).collect();
            let remove = file.add.to_remove(7, true);
            staged.actions.push(Action::Remove(remove));
            staged.actions.push(Action::Add(self.write(&kept, None)));
        }
        if staged.touched.is_empty() && staged.actions.is_empty() {
            return None;
        }
        if let Some((app_id, version)) = marking.options.txn.clone() {
            staged.actions.push(Action::Txn(crate::log::Txn {
                app_id,
                version,
                last_updated: Some(7),
            }));
        }
        Some(staged)
    }

    fn remove(&mut self, client: usize, path: &str) -> Result<(), String> {
        let data_path = crate::table::DataPath::Inside(path.to_owned());
        let before = self.table(client).refresh().unwrap().version();
        let answer = match ops::remove(self.table(client), &data_path) {
            Ok(report) => Answer::Version(report.version.ok_or("rm did nothing")?),
            Err(OpError::Gone(_)) => Answer::Nothing,
            Err(other) => return Err(format!("an unexpected failure: {other}")),
        };
        let statement = Statement::Replace {
            gone: BTreeSet::new(),
            rows: Vec::new(),
        };
        let index = self.told(client, statement, before, answer);
        self.replaced.insert(index, path.to_owned());
        Ok(())
    }

    fn rename(&mut self, client: usize, path: &str) -> Result<(), String> {
        let data_path = crate::table::DataPath::Inside(path.to_owned());
        let name = format!("moved-{}.parquet", self.id());
        let before = self.table(client).refresh().unwrap().version();
        let answer = match ops::rename(self.table(client), &data_path, &name) {
            Ok(report) => Answer::Version(report.version.ok_or("mv did nothing")?),
            Err(OpError::Gone(_)) => Answer::Nothing,
            Err(other) => return Err(format!("an unexpected failure: {other}")),
        };
        self.told(client, Statement::Rearrange, before, answer);
        Ok(())
    }

    fn count(
        &mut self,
        client: usize,
        of: Pred,
        row: Row,
        base: &Arc<Snapshot>,
    ) -> Result<(), String> {
        let actions = vec![Action::Add(self.write(&[row], None))];
        let reads = Reads::Known(self.read_set(base, &of, true));
        let mut staged = Staged::with(actions, Operation::new("WRITE"), reads);
        // The rows that were counted stay, and must stay.
        for file in base.live_files() {
            let dead = self.tables[0].dead_rows(&file).unwrap();
            let physical = self.physical(&file);
            let counted = live(&physical, &dead).filter(|(_, row)| of.selects(row));
            let read: RowSet = counted.map(|(position, _)| position).collect();
            if !read.is_empty() {
                staged.touched.push(Touched {
                    file,
                    dead: Some(dead),
                    rows: Rows::These(RowSet::new()),
                    read,
                    physical: Some(physical.len() as u64),
                });
            }
        }
        if self.lie == Some(Lie::Counts) {
            staged.reads = Reads::Known(ReadSet::default());
            staged.touched.clear();
        }
        let answer = self.answer(client, &mut staged, base)?;
        self.told(client, Statement::Count { of, row }, base.version(), answer);
        Ok(())
    }

    fn alter(
        &mut self,
        client: usize,
        mut metadata: Metadata,
        counted: Option<u64>,
        base: &Arc<Snapshot>,
    ) -> Result<(), String> {
        let mark = self.id();
        metadata
            .configuration
            .insert(MARK.to_owned(), mark.to_string());
        let mut reads = ReadSet::default();
        if counted.is_some() && self.lie != Some(Lie::Constraints) {
            reads.whole_table = true;
            reads.files = base.live_files().map(|f| f.path.key().to_owned()).collect();
        }
        let operation = Operation::new("SET TBLPROPERTIES");
        let actions = vec![Action::MetaData(metadata)];
        let mut staged = Staged::with(actions, operation, Reads::Known(reads));
        let answer = self.answer(client, &mut staged, base)?;
        let statement = Statement::Alter { mark, counted };
        self.told(client, statement, base.version(), answer);
        Ok(())
    }

    /// A compaction by hand.
    fn compact(
        &mut self,
        client: usize,
        in_order: bool,
        base: &Arc<Snapshot>,
    ) -> Result<(), String> {
        let mut staged = Staged::with(
            Vec::new(),
            Operation::new("OPTIMIZE"),
            Reads::Known(ReadSet::default()),
        );
        let live_files: Vec<Arc<LiveFile>> = base.live_files().collect();
        let of = |p: Option<char>| {
            let there = |f: &&Arc<LiveFile>| p.is_none_or(|p| partition(&f.add) == Some(p));
            live_files.iter().filter(there).cloned().collect::<Vec<_>>()
        };
        let places = match self.shape.partitioned {
            true => PARTITIONS.map(Some).to_vec(),
            false => vec![None],
        };
        for place in places {
            let mut files = self.dice.some(&of(place));
            if files.len() > 3 {
                // Two bins where there is enough for them.
                let rest = files.split_off(2);
                self.bin(&rest, in_order, &mut staged);
            }
            self.bin(&files, in_order, &mut staged);
        }
        let answer = match staged.bins.is_empty() {
            true => Answer::Nothing,
            false => self.answer(client, &mut staged, base)?,
        };
        self.told(client, Statement::Rearrange, base.version(), answer);
        Ok(())
    }

    fn bin(&mut self, files: &[Arc<LiveFile>], in_order: bool, staged: &mut Staged) {
        let (mut all, mut sources) = (Vec::new(), Vec::new());
        for file in files {
            let dead = self.tables[0].dead_rows(file).unwrap();
            let rows: Vec<Row> = live(&self.physical(file), &dead)
                .map(|(_, row)| row)
                .collect();
            sources.push(Source {
                file: Arc::clone(file),
                vector: file.add.deletion_vector.clone(),
                dead,
                start: all.len() as u64,
                rows: rows.len() as u64,
                live: true,
            });
            all.extend(rows);
        }
        if sources.len() < 2 && sources.iter().all(|s| s.dead.is_empty()) {
            return;
        }
        if !in_order {
            all.reverse();
        }
        let mut add = self.write(&all, None);
        add.data_change = false;
        staged.bins.push(Bin {
            path: add.path.clone(),
            add,
            sources,
            dead: RowSet::new(),
            in_order,
        });
    }

    // ---- files

    fn file_name(&mut self) -> String {
        format!("f{}.parquet", self.id())
    }

    /// A new data file of rows of one partition.
    fn write(&mut self, rows: &[Row], name: Option<&str>) -> Add {
        let file = self.file_name();
        let p = rows.first().map_or('a', |row| row.p);
        let mut values = BTreeMap::new();
        let path = if self.shape.partitioned {
            std::fs::create_dir_all(self.guard.path().join(format!("p={p}"))).unwrap();
            values.insert("p".to_owned(), Some(p.to_string()));
            format!("p={p}/{file}")
        } else {
            file
        };
        let out = File::create_new(self.guard.path().join(&path)).unwrap();
        if self.shape.real {
            write_parquet(out, rows, !self.shape.partitioned);
        }
        let mut contents = self.contents.lock().unwrap();
        contents.insert(path.clone(), rows.to_vec());
        drop(contents);
        let size = self.guard.path().join(&path).metadata().unwrap().len();
        let stats = json!({"numRecords": rows.len(), "tightBounds": true}).to_string();
        Add {
            path,
            partition_values: values,
            size: i64::try_from(size).unwrap(),
            modification_time: 7,
            data_change: true,
            stats: Some(stats),
            tags: name.map(|name| [(NAME_TAG.to_owned(), Some(name.to_owned()))].into()),
            deletion_vector: None,
            base_row_id: None,
            default_row_commit_version: None,
            clustering_provider: None,
            unknown: serde_json::Map::new(),
        }
    }

    fn physical(&self, file: &LiveFile) -> Vec<Row> {
        self.contents.lock().unwrap()[file.path.key()].clone()
    }

    /// The rows of a snapshot that a condition selects.
    fn selected(&self, base: &Snapshot, pred: &Pred) -> Vec<Row> {
        let mut rows = Vec::new();
        for file in base.live_files() {
            let dead = self.tables[0].dead_rows(&file).unwrap();
            rows.extend(live(&self.physical(&file), &dead).map(|(_, row)| row));
        }
        rows.retain(|row| pred.selects(row));
        rows
    }

    fn read_set(&self, base: &Snapshot, pred: &Pred, local: bool) -> ReadSet {
        let condition = Where {
            pred: pred.clone(),
            local,
            contents: Arc::clone(&self.contents),
        };
        let read = base.live_files();
        let read = read.filter(|f| partition(&f.add).is_none_or(|p| pred.may_select(p)));
        ReadSet {
            files: read.map(|f| f.path.key().to_owned()).collect(),
            conditions: vec![Arc::new(condition)],
            ..ReadSet::default()
        }
    }

    /// Reads the files that the product has written.
    fn learn(&mut self) -> Result<(), String> {
        if !self.shape.real {
            return Ok(());
        }
        let newest = self.tables[0].refresh().map_err(|e| e.to_string())?;
        for file in newest.live_files() {
            let mut contents = self.contents.lock().unwrap();
            let key = file.path.key();
            if !contents.contains_key(key) {
                let rows = read_parquet(&self.guard.path().join(key), partition(&file.add));
                contents.insert(key.to_owned(), rows);
            }
        }
        Ok(())
    }

    fn checkpoint(&mut self, client: usize) -> Result<(), String> {
        let snapshot = self.table(client).snapshot();
        let due = |interval: u64| snapshot.version().is_multiple_of(interval);
        if snapshot.version() > 0 && self.shape.interval.is_some_and(due) {
            let written = ops::checkpoint(self.table(client), &snapshot);
            written.map_err(|e| format!("no checkpoint: {e}"))?;
            self.note("checkpoint");
        }
        Ok(())
    }

    // ---- the end

    fn finish(mut self, played: Result<(), String>) -> Run {
        let contents = self.contents.lock().unwrap().clone();
        let (versions, fault) = match observe::observe(self.guard.path(), &contents) {
            Ok(versions) => {
                self.complete(&versions);
                let fault = played.and_then(|()| self.verdict(&versions)).err();
                (versions, fault)
            }
            Err(fault) => (Vec::new(), Some(fault)),
        };
        Run {
            shape: self.shape,
            history: self.history,
            versions,
            seen: self.seen,
            fault,
        }
    }

    /// What only the log can tell: the version that a transaction has read in the end, and the rows of files.
    fn complete(&mut self, versions: &[Version]) {
        for (index, txn) in self.history.iter_mut().enumerate() {
            let Answer::Version(version) = txn.answer else {
                continue;
            };
            let at = usize::try_from(version).unwrap();
            let told = versions.get(at).and_then(Version::read);
            if !txn.statement.is_append() && self.lie.is_none() {
                txn.read = told.unwrap_or(txn.read).max(txn.read);
            }
            let (Some(path), Some(before)) =
                (self.replaced.get(&index), versions.get(at.wrapping_sub(1)))
            else {
                continue;
            };
            txn.read = version - 1;
            if let (Statement::Replace { gone, .. }, Some(file)) =
                (&mut txn.statement, before.files.get(path))
            {
                gone.extend(file.rows.iter().map(|row| row.id));
            }
        }
    }

    fn verdict(&mut self, versions: &[Version]) -> Result<(), String> {
        let states: Vec<_> = versions.iter().map(|v| v.state.clone()).collect();
        let order = check::check(&self.history, &states)?;
        let in_order = order.is_sorted_by_key(|i| self.history[*i].version());
        if !in_order {
            self.note("another order than that of the versions");
        }
        for table in &self.tables {
            observe::compare(&table.snapshot(), versions)?;
        }
        let last = versions.len() as u64;
        let some = (0..1).map(|_| self.dice.roll() % last).collect::<Vec<_>>();
        observe::reopen(&self.tables[0], versions, some)?;
        let log = self.guard.path().join(LOG_DIR);
        for folder in [self.guard.path(), &log] {
            let names = std::fs::read_dir(folder).unwrap();
            let mut names = names.map(|e| e.unwrap().file_name());
            if let Some(left) = names.find(|n| crate::table::is_temporary(n)) {
                return Err(format!("{} is left", left.display()));
            }
        }
        Ok(())
    }
}

/// A DELETE that is staged by hand.
struct Marking {
    pred: Pred,
    options: Options,
    /// Whether rows can be looked at one by one.
    local: bool,
    /// Whether files of which nothing stays are removed without naming their rows.
    whole_files: bool,
}

/// A condition that knows what is in the files.
#[derive(Debug)]
struct Where {
    pred: Pred,
    local: bool,
    contents: Arc<Mutex<Contents>>,
}

impl Condition for Where {
    fn may_select(&self, _: &Snapshot, file: &Add) -> bool {
        partition(file).is_none_or(|p| self.pred.may_select(p))
    }

    fn is_row_local(&self) -> bool {
        self.local
    }

    fn selected(
        &self,
        table: &Table,
        _: &Snapshot,
        file: &LiveFile,
        among: Option<&RowSet>,
    ) -> Result<u64, String> {
        let dead = table.dead_rows(file).map_err(|e| e.to_string())?;
        let path = file.path.key();
        let physical = {
            let mut contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
            let read = || read_parquet(&table.dir().path().join(path), partition(&file.add));
            contents.entry(path.to_owned()).or_insert_with(read).clone()
        };
        let selected = live(&physical, &dead)
            .filter(|(position, _)| among.is_none_or(|among| among.contains(*position)))
            .filter(|(_, row)| self.pred.selects(row));
        Ok(selected.count() as u64)
    }
}

fn partition(add: &Add) -> Option<char> {
    add.partition_values.get("p")?.as_ref()?.chars().next()
}

fn live<'a>(physical: &'a [Row], dead: &'a RowSet) -> impl Iterator<Item = (u64, Row)> + 'a {
    let rows = (0..).zip(physical.iter().copied());
    rows.filter(|(position, _)| !dead.contains(*position))
}

fn scratch(directory: &Path) -> impl Fn() -> std::io::Result<File> + Sync + use<> {
    let directory = directory.to_owned();
    move || tempfile::tempfile_in(&directory)
}
