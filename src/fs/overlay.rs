//! What the tree shows beside the snapshots: files on their way in, and partition directories without files.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use super::site::{Place, Site};
use super::stage::{Phase, Stage};
use crate::env::Millis;

/// How long a name stays reachable between two requests of one tool, in milliseconds: after its rows went
/// elsewhere, or before the kernel has come back for a replacement.
const GRACE_MS: Millis = 2000;

#[derive(Debug)]
struct Reserved {
    stage: Arc<Stage>,
    /// The thread.
    pid: u32,
    since: Millis,
}

#[derive(Debug, Default)]
pub(super) struct Overlay {
    staged: BTreeMap<Place, BTreeMap<OsString, Arc<Stage>>>,
    /// Files that a thread has been told to look for again, in the middle of its open: nobody else finds them.
    reserved: Vec<Reserved>,
    /// Made by mkdir, or emptied by rm: `(table, a=1/)`.
    dirs: BTreeSet<(Site, String)>,
}

impl Overlay {
    /// The staged file under a name, unless it has become a live one.
    pub(super) fn get(&self, place: &Place, name: &OsStr, now: Millis) -> Option<Arc<Stage>> {
        let stage = self.staged.get(place)?.get(name)?;
        let visible = {
            let state = stage.state();
            match state.phase {
                Phase::Open => true,
                Phase::Scattered(since) => now.saturating_sub(since) < GRACE_MS,
                Phase::Committed(_) | Phase::Gone => false,
            }
        };
        visible.then(|| Arc::clone(stage))
    }

    /// Keeps a file for the thread that comes back for it.
    pub(super) fn reserve(&mut self, stage: &Arc<Stage>, pid: u32, now: Millis) {
        self.reserved
            .retain(|r| r.pid != pid && now.saturating_sub(r.since) < GRACE_MS);
        self.reserved.push(Reserved {
            stage: Arc::clone(stage),
            pid,
            since: now,
        });
    }

    /// The file that is kept for a thread under that name. The kernel looks twice before it opens.
    pub(super) fn kept(&self, place: &Place, name: &OsStr, pid: u32) -> Option<Arc<Stage>> {
        let mine = |r: &Reserved| r.pid == pid && r.stage.place == *place && r.stage.name() == name;
        self.reserved
            .iter()
            .find(|r| mine(r))
            .map(|r| Arc::clone(&r.stage))
    }

    /// Its thread has come for it.
    pub(super) fn hand_over(&mut self, stage: &Arc<Stage>) {
        self.reserved.retain(|r| !Arc::ptr_eq(&r.stage, stage));
    }

    pub(super) fn insert(&mut self, stage: &Arc<Stage>) -> Option<Arc<Stage>> {
        let name = stage.name();
        self.staged
            .entry(stage.place.clone())
            .or_default()
            .insert(name, Arc::clone(stage))
    }

    /// Takes a staged file out if it is still the one under its name.
    pub(super) fn remove(&mut self, stage: &Arc<Stage>, name: &OsStr) {
        if let Some(names) = self.staged.get_mut(&stage.place) {
            if names.get(name).is_some_and(|s| Arc::ptr_eq(s, stage)) {
                names.remove(name);
            }
            if names.is_empty() {
                self.staged.remove(&stage.place);
            }
        }
    }

    /// What a listing of `place` shows: scratch files, and data names that wait for their first byte. A data file
    /// in the middle of being written would only make readers of the directory fail.
    pub(super) fn listed(
        &self,
        place: &Place,
        is_data: impl Fn(&OsStr) -> bool,
    ) -> Vec<Arc<Stage>> {
        let Some(names) = self.staged.get(place) else {
            return Vec::new();
        };
        names
            .iter()
            .filter(|(name, stage)| {
                let state = stage.state();
                matches!(state.phase, Phase::Open) && (!is_data(name) || !state.dirty)
            })
            .map(|(_, stage)| Arc::clone(stage))
            .collect()
    }

    /// Whether anything is on its way into `site`, below the visible directory `dir`.
    pub(super) fn is_used(&self, site: &Site, dir: &str) -> bool {
        self.bound_for(site)
            .any(|s| s.place.dir.starts_with(dir) && matches!(s.state().phase, Phase::Open))
    }

    /// Whether somebody has a file open that is on its way into `site`.
    pub(super) fn is_written(&self, site: &Site) -> bool {
        self.bound_for(site).any(|s| s.state().writers > 0)
    }

    fn bound_for<'a>(&'a self, site: &'a Site) -> impl Iterator<Item = &'a Arc<Stage>> {
        let places = self.staged.iter().filter(|(place, _)| place.site == *site);
        places.flat_map(|(_, names)| names.values())
    }

    /// Forgets all of a site that is no more, and gives the files that were on their way there.
    pub(super) fn close(&mut self, site: &Site) -> Vec<Arc<Stage>> {
        let stages = self.bound_for(site).cloned().collect();
        self.staged.retain(|place, _| place.site != *site);
        self.reserved.retain(|r| r.stage.place.site != *site);
        self.dirs.retain(|(of, _)| of != site);
        stages
    }

    /// Takes out what was only shown for a moment's grace.
    pub(super) fn expired(&mut self, now: Millis) -> Vec<Arc<Stage>> {
        self.reserved
            .retain(|r| now.saturating_sub(r.since) < GRACE_MS);
        let mut expired = Vec::new();
        for names in self.staged.values_mut() {
            names.retain(|_, stage| {
                let over = {
                    let state = stage.state();
                    match state.phase {
                        Phase::Scattered(since) => now.saturating_sub(since) >= GRACE_MS,
                        Phase::Open => false,
                        Phase::Committed(_) | Phase::Gone => true,
                    }
                };
                if over {
                    expired.push(Arc::clone(stage));
                }
                !over
            });
        }
        self.staged.retain(|_, names| !names.is_empty());
        expired
    }

    pub(super) fn all(&self) -> Vec<Arc<Stage>> {
        self.staged
            .values()
            .flat_map(|names| names.values().cloned())
            .collect()
    }

    pub(super) fn add_dir(&mut self, site: &Site, dir: &str) {
        self.dirs.insert((site.clone(), dir.to_owned()));
    }

    pub(super) fn remove_dir(&mut self, site: &Site, dir: &str) -> bool {
        self.dirs.remove(&(site.clone(), dir.to_owned()))
    }

    pub(super) fn has_dir(&self, site: &Site, dir: &str) -> bool {
        self.dirs_below(site, dir).next().is_some()
    }

    /// The empty partition directories whose path starts with `dir`.
    pub(super) fn dirs_below<'a>(
        &'a self,
        site: &Site,
        dir: &'a str,
    ) -> impl Iterator<Item = &'a str> {
        let from = (site.clone(), dir.to_owned());
        let site = site.clone();
        self.dirs
            .range(from..)
            .take_while(move |(s, d)| *s == site && d.starts_with(dir))
            .map(|(_, d)| d.as_str())
    }
}
