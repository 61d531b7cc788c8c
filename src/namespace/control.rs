//! The entries of `.delta/` (DESIGN.md §1), in one table that lookup, listing and README share.

use std::path::PathBuf;

/// A verb of `ctl/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    Delete,
    Optimize,
}

impl Verb {
    pub const ALL: &'static [Verb] = &[Verb::Delete, Verb::Optimize];

    /// The file's name in `ctl/`.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Delete => "delete",
            Verb::Optimize => "optimize",
        }
    }

    /// Grammar, for README and for the file before its first use.
    pub fn grammar(self) -> &'static str {
        match self {
            Verb::Delete => "[WHERE] PREDICATE      the rows for which it is true; TRUE for all",
            Verb::Optimize => {
                "OPTIMIZE [WHERE PREDICATE]      put small files together; only in partitions for which it is true"
            }
        }
    }

    /// Whether it can be a step of a transaction.
    pub fn is_step(self) -> bool {
        match self {
            Verb::Delete => true,
            Verb::Optimize => false,
        }
    }

    /// One or two lines to try.
    pub fn example(self) -> &'static str {
        match self {
            Verb::Delete => "echo \"amount < 0 OR country IS NULL\" > .delta/ctl/delete",
            Verb::Optimize => "echo OPTIMIZE > .delta/ctl/optimize",
        }
    }
}

/// A directory of `in/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    Append,
}

impl Mode {
    pub const ALL: &'static [Mode] = &[Mode::Append];

    pub fn name(self) -> &'static str {
        match self {
            Mode::Append => "append",
        }
    }

    pub fn meaning(self) -> &'static str {
        match self {
            Mode::Append => "a file copied here is appended, also when its name is taken",
        }
    }
}

/// An entry of a control directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Control {
    /// `.delta` itself.
    Dir,
    Readme,
    Version,
    Info,
    History,
    HistoryJsonl,
    SchemaJson,
    Last,
    Ctl,
    Verb(Verb),
    In,
    Mode(Mode),
    Rejected,
    /// A refused file or its `.reason`.
    RejectedFile(String),
    /// Earlier versions, by number.
    Versions,
    /// Earlier versions, by the time at which they were the newest.
    At,
    /// Explicit transactions, by the names that their users give them.
    Tx,
    /// The physical table, or a path in it.
    Raw(PathBuf),
}

impl Control {
    /// Whether it is a directory; `None` where only the store can tell (below `raw/`).
    pub fn is_dir(&self) -> Option<bool> {
        match self {
            Control::Dir
            | Control::Ctl
            | Control::In
            | Control::Mode(_)
            | Control::Rejected
            | Control::Versions
            | Control::At
            | Control::Tx => Some(true),
            Control::Readme
            | Control::Version
            | Control::Info
            | Control::History
            | Control::HistoryJsonl
            | Control::SchemaJson
            | Control::Last
            | Control::Verb(_)
            | Control::RejectedFile(_) => Some(false),
            Control::Raw(path) => path.as_os_str().is_empty().then_some(true),
        }
    }

    /// The fixed entries below; `table` says whether the control directory is a table's or a plain directory's.
    pub fn children(&self, table: bool) -> Vec<(&'static str, Control)> {
        match self {
            Control::Dir if table => vec![
                ("README", Control::Readme),
                ("version", Control::Version),
                ("info.json", Control::Info),
                ("history", Control::History),
                ("history.jsonl", Control::HistoryJsonl),
                ("schema.json", Control::SchemaJson),
                ("ctl", Control::Ctl),
                ("in", Control::In),
                ("last", Control::Last),
                ("rejected", Control::Rejected),
                ("versions", Control::Versions),
                ("at", Control::At),
                ("tx", Control::Tx),
                ("raw", Control::Raw(PathBuf::new())),
            ],
            Control::Dir => vec![
                ("README", Control::Readme),
                ("last", Control::Last),
                ("rejected", Control::Rejected),
            ],
            Control::Ctl => Verb::ALL
                .iter()
                .map(|v| (v.name(), Control::Verb(*v)))
                .collect(),
            Control::In => Mode::ALL
                .iter()
                .map(|m| (m.name(), Control::Mode(*m)))
                .collect(),
            Control::Readme
            | Control::Version
            | Control::Info
            | Control::History
            | Control::HistoryJsonl
            | Control::SchemaJson
            | Control::Last
            | Control::Verb(_)
            | Control::Mode(_)
            | Control::Rejected
            | Control::RejectedFile(_)
            | Control::Versions
            | Control::At
            | Control::Tx
            | Control::Raw(_) => Vec::new(),
        }
    }

    /// The entries of the control directory of an earlier version: what can be told of it and never changes.
    pub fn of_a_version() -> [(&'static str, Control); 5] {
        [
            ("version", Control::Version),
            ("info.json", Control::Info),
            ("history", Control::History),
            ("history.jsonl", Control::HistoryJsonl),
            ("schema.json", Control::SchemaJson),
        ]
    }

    /// The fixed entry of that name.
    pub fn child(&self, name: &str, table: bool) -> Option<Control> {
        self.children(table)
            .into_iter()
            .find(|(n, _)| *n == name)
            .map(|(_, c)| c)
    }

    /// What identifies the entry: its path below `.delta`, as bytes.
    pub fn key(&self) -> Vec<u8> {
        match self {
            Control::Raw(path) => [b"raw/", path.as_os_str().as_encoded_bytes()].concat(),
            other => other.path().into_bytes(),
        }
    }

    /// The path below `.delta`, for people.
    pub fn path(&self) -> String {
        match self {
            Control::Dir => String::new(),
            Control::Readme => "README".to_owned(),
            Control::Version => "version".to_owned(),
            Control::Info => "info.json".to_owned(),
            Control::History => "history".to_owned(),
            Control::HistoryJsonl => "history.jsonl".to_owned(),
            Control::SchemaJson => "schema.json".to_owned(),
            Control::Last => "last".to_owned(),
            Control::Ctl => "ctl".to_owned(),
            Control::Verb(verb) => format!("ctl/{}", verb.name()),
            Control::In => "in".to_owned(),
            Control::Mode(mode) => format!("in/{}", mode.name()),
            Control::Rejected => "rejected".to_owned(),
            Control::RejectedFile(name) => format!("rejected/{name}"),
            Control::Versions => "versions".to_owned(),
            Control::At => "at".to_owned(),
            Control::Tx => "tx".to_owned(),
            Control::Raw(path) => format!("raw/{}", path.display()),
        }
    }
}

/// An entry of a transaction's directory beside the table's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TxControl {
    Commit,
    Outcome,
    Ctl,
    Verb(Verb),
    In,
    Mode(Mode),
}

impl TxControl {
    /// Those of the directory itself.
    pub const ROOT: [(&'static str, TxControl); 4] = [
        ("commit", TxControl::Commit),
        ("outcome", TxControl::Outcome),
        ("ctl", TxControl::Ctl),
        ("in", TxControl::In),
    ];

    pub fn is_dir(self) -> bool {
        match self {
            TxControl::Ctl | TxControl::In | TxControl::Mode(_) => true,
            TxControl::Commit | TxControl::Outcome | TxControl::Verb(_) => false,
        }
    }

    /// The fixed entries below.
    pub fn children(self) -> Vec<(&'static str, TxControl)> {
        match self {
            TxControl::Ctl => {
                let verbs = Verb::ALL.iter().filter(|v| v.is_step());
                verbs.map(|v| (v.name(), TxControl::Verb(*v))).collect()
            }
            TxControl::In => {
                let modes = Mode::ALL.iter();
                modes.map(|m| (m.name(), TxControl::Mode(*m))).collect()
            }
            TxControl::Commit | TxControl::Outcome | TxControl::Verb(_) | TxControl::Mode(_) => {
                Vec::new()
            }
        }
    }

    /// The path below the transaction's directory.
    pub fn path(self) -> String {
        match self {
            TxControl::Commit => "commit".to_owned(),
            TxControl::Outcome => "outcome".to_owned(),
            TxControl::Ctl => "ctl".to_owned(),
            TxControl::Verb(verb) => format!("ctl/{}", verb.name()),
            TxControl::In => "in".to_owned(),
            TxControl::Mode(mode) => format!("in/{}", mode.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_under_its_own_path() {
        for table in [false, true] {
            for (name, entry) in Control::Dir.children(table) {
                assert_eq!(entry.path().trim_end_matches('/'), name);
                for (below, child) in entry.children(table) {
                    assert_eq!(child.path(), format!("{name}/{below}"));
                    assert_eq!(entry.child(below, table), Some(child));
                }
            }
        }
    }

    #[test]
    fn the_entries_of_a_transaction_too() {
        for (name, entry) in TxControl::ROOT {
            assert_eq!(entry.path(), name);
            assert_eq!(entry.is_dir(), !entry.children().is_empty());
            for (below, child) in entry.children() {
                assert_eq!(child.path(), format!("{name}/{below}"));
            }
        }
    }
}
