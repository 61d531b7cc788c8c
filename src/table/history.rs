//! The versions that the log still tells of, and when each was made (PROTOCOL.md A3).

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::sync::Arc;

use super::segment::{self, Listing};
use super::travel::{Kept, lock};
use super::{Snapshot, Table, TableError, protocol};
use crate::env::Millis;
use crate::log::{Action, CommitInfo, LOG_DIR, LogName};

/// A commit's first line, where the in-commit timestamp is, is not longer in practice.
const HEAD_BYTES: u64 = 256 * 1024;
/// For how long the times of commit files are believed: nobody changes them, but a copy or a restore does.
const TIMES_MS: Millis = 60_000;

/// One version of the history.
#[derive(Debug, Clone)]
pub struct HistoryEntry {
    pub version: u64,
    /// Milliseconds since the epoch: the in-commit timestamp, else the commit file's time, made monotonic.
    pub timestamp: i64,
    /// Empty when the writer left none.
    pub info: CommitInfo,
}

/// The times of commits without an in-commit timestamp, as they were last read.
#[derive(Debug, Default)]
pub(super) struct Times {
    read: Millis,
    /// Ascending in both.
    times: Arc<Vec<(u64, Millis)>>,
}

/// From where on the commits themselves say when they were made.
#[derive(Debug, Clone, Copy)]
struct Stamps {
    /// The first such version; none is as high as `u64::MAX`.
    first: u64,
    /// Its time.
    since: Millis,
}

impl Stamps {
    fn of(snapshot: &Snapshot) -> Result<Self, TableError> {
        let metadata = snapshot.metadata();
        if !protocol::in_commit_timestamps(snapshot.protocol(), metadata) {
            return Ok(Stamps {
                first: u64::MAX,
                since: Millis::MAX,
            });
        }
        let property = |name: &'static str| {
            let text = metadata.configuration.get(name)?;
            Some((name, text.trim().to_owned()))
        };
        let bad = |(name, text): (&str, String)| TableError::Malformed {
            version: snapshot.version(),
            what: "table property",
            reason: format!("{name} is {text:?}, which is no whole number"),
        };
        // Without both, they were enabled from the start.
        let first = property("delta.inCommitTimestampEnablementVersion");
        let since = property("delta.inCommitTimestampEnablementTimestamp");
        let (Some(first), Some(since)) = (first, since) else {
            return Ok(Stamps {
                first: 0,
                since: Millis::MIN,
            });
        };
        Ok(Stamps {
            first: first.1.parse().map_err(|_| bad(first))?,
            since: since.1.parse().map_err(|_| bad(since))?,
        })
    }
}

impl Table {
    /// The versions after `after` up to `to`, oldest first. Versions whose commit file is gone are left out
    /// (D97: each entry is of the version that it names).
    ///
    /// # Errors
    /// [`TableError`] when a commit can't be read.
    pub fn history(&self, after: Option<u64>, to: u64) -> Result<Vec<HistoryEntry>, TableError> {
        let listing = Listing::read(&self.dir)?;
        let from = after.map_or(0, |v| v + 1);
        let mut entries = Vec::new();
        if from > to {
            return Ok(entries);
        }
        let newest = self.snapshot();
        let stamps = Stamps::of(&newest)?;
        let kept = self.kept(newest.version())?;
        let times = self.times(&kept, stamps)?;
        for &version in listing.commits.range(from..=to) {
            let Some(commit) = segment::read_commit(&self.dir, version)? else {
                continue;
            };
            let info = commit.actions.iter().find_map(|a| match a {
                Action::CommitInfo(info) => Some(info.clone()),
                _ => None,
            });
            let stamped = commit
                .in_commit_timestamp()
                .filter(|_| version >= stamps.first);
            let timestamp = stamped
                .or_else(|| time_in(&times, version))
                .unwrap_or(commit.modified);
            entries.push(HistoryEntry {
                version,
                timestamp,
                info: info.unwrap_or_default(),
            });
        }
        Ok(entries)
    }

    /// The version that was the newest one at a time; after the last commit, that is the last version.
    ///
    /// Where in-commit timestamps are enabled, they decide from the version on that enabled them, and commits are
    /// read by halves; before, and in other tables, the times of the commit files do, and none is opened (A3, D91).
    ///
    /// # Errors
    /// [`TableError::BeforeHistory`] when the table is younger or its log does not reach back so far;
    /// [`TableError::Malformed`] for a commit without the timestamp that it must have; [`TableError::Store`].
    pub fn version_at(&self, asked: Millis) -> Result<u64, TableError> {
        let newest = self.snapshot();
        let kept = self.kept(newest.version())?;
        // A checkpoint alone tells nothing of its time, but for the newest version there is no later one.
        let timed = kept.commits.binary_search(&newest.version()).is_ok();
        if !timed && asked >= newest.timestamp() {
            return Ok(newest.version());
        }
        let stamps = Stamps::of(&newest)?;
        let has_commit = |v: &&u64| kept.commits.binary_search(v).is_ok();
        let versions: Vec<u64> = kept.versions.iter().filter(has_commit).copied().collect();
        let (old, stamped) = versions.split_at(versions.partition_point(|v| *v < stamps.first));

        let times = self.times(&kept, stamps)?;
        let first_old = old.first().and_then(|v| Some((*v, time_in(&times, *v)?)));
        if asked < stamps.since || stamps.first == u64::MAX {
            let found = old.iter().rev();
            let mut found = found.filter(|v| time_in(&times, **v).is_some_and(|t| t <= asked));
            if let Some(version) = found.next() {
                return Ok(*version);
            }
        }
        let (mut low, mut high) = (0, stamped.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.demanded_stamp(stamped[middle])? <= asked {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        match low.checked_sub(1).and_then(|at| stamped.get(at)) {
            Some(version) => Ok(*version),
            None => {
                let first = match (first_old, stamped.first()) {
                    // The copy of a table has new file times; they say nothing once they are later than the stamps.
                    (Some((_, time)), Some(version)) if time >= stamps.since => {
                        Some((*version, self.demanded_stamp(*version)?))
                    }
                    (None, Some(version)) => Some((*version, self.demanded_stamp(*version)?)),
                    (first_old, _) => first_old,
                };
                Err(TableError::BeforeHistory {
                    asked,
                    earliest: first,
                })
            }
        }
    }

    /// When a version was committed; `None` when the log has no commit file of it any more.
    ///
    /// # Errors
    /// [`TableError`] when its commit can't be read.
    pub fn version_time(&self, version: u64) -> Result<Option<Millis>, TableError> {
        let newest = self.snapshot();
        let stamps = Stamps::of(&newest)?;
        let time = if version >= stamps.first {
            self.stamp(version)?
        } else {
            let kept = self.kept(newest.version())?;
            let times = self.times(&kept, stamps)?;
            time_in(&times, version)
        };
        let known = (version == newest.version()).then(|| newest.timestamp());
        Ok(time.or(known))
    }

    /// The times of the commit files before the first stamped version: each at least 1 ms after the one before it.
    fn times(&self, kept: &Kept, stamps: Stamps) -> Result<Arc<Vec<(u64, Millis)>>, TableError> {
        let now = self.env.now();
        let end = kept.commits.partition_point(|v| *v < stamps.first);
        let commits = &kept.commits[..end];
        let mut cache = lock(&self.travel.times);
        let usable = (0..TIMES_MS).contains(&now.saturating_sub(cache.read))
            && starts_with(commits, &cache.times);
        if usable && cache.times.len() == commits.len() {
            return Ok(Arc::clone(&cache.times));
        }
        let mut times = if usable {
            Vec::clone(&cache.times)
        } else {
            cache.read = now;
            Vec::with_capacity(commits.len())
        };
        for &version in &commits[times.len()..] {
            let path = Path::new(LOG_DIR).join(LogName::commit(version));
            let modified = match self.dir.metadata(&path) {
                Ok(meta) => segment::modified_ms(&meta),
                // Cleaned up since the listing.
                Err(e) if e.is_absent() => continue,
                Err(e) => return Err(e.into()),
            };
            let after = times
                .last()
                .map(|(_, t): &(u64, Millis)| t.saturating_add(1));
            times.push((version, after.map_or(modified, |after| modified.max(after))));
        }
        cache.times = Arc::new(times);
        Ok(Arc::clone(&cache.times))
    }

    fn demanded_stamp(&self, version: u64) -> Result<Millis, TableError> {
        self.stamp(version)?.ok_or_else(|| TableError::Malformed {
            version,
            what: "commit",
            reason: "in-commit timestamps are enabled, but it has no inCommitTimestamp".to_owned(),
        })
    }

    /// The in-commit timestamp of a version. Reads one line, as it must stand in the first one.
    fn stamp(&self, version: u64) -> Result<Option<Millis>, TableError> {
        let path = Path::new(LOG_DIR).join(LogName::commit(version));
        let file = match self.dir.open_file(&path) {
            Ok(file) => file,
            Err(e) if e.is_absent() => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let mut line = Vec::new();
        let read = BufReader::new(file.take(HEAD_BYTES)).read_until(b'\n', &mut line);
        let head = read
            .ok()
            .and_then(|_| crate::schema::json::from_slice(&line).ok());
        let stamped = head.and_then(|v| v.pointer("/commitInfo/inCommitTimestamp")?.as_i64());
        if stamped.is_some() {
            return Ok(stamped);
        }
        let commit = segment::read_commit(&self.dir, version)?;
        Ok(commit.and_then(|c| c.in_commit_timestamp()))
    }

    /// The bytes of a file of the table for the physical view (`.delta/raw`).
    ///
    /// # Errors
    /// [`TableError::Store`].
    pub fn raw_file(&self, path: &Path) -> Result<std::fs::File, TableError> {
        Ok(self.dir.open_file(path)?)
    }
}

/// Whether times are of the first of these versions, all of them. Both ascend, so the ends tell, and a look at a
/// version costs no walk over the others.
fn starts_with(commits: &[u64], times: &[(u64, Millis)]) -> bool {
    let (Some((first, _)), Some((last, _))) = (times.first(), times.last()) else {
        return true;
    };
    commits.first() == Some(first) && commits.get(times.len() - 1) == Some(last)
}

fn time_in(times: &[(u64, Millis)], version: u64) -> Option<Millis> {
    let at = times.binary_search_by_key(&version, |(v, _)| *v).ok()?;
    Some(times[at].1)
}
