//! `deltafs status`

use std::path::PathBuf;

use clap::Args;

use super::{CliError, locate, output};
use crate::fuse::{Health, MountEntry, mounts};

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// Only this one.
    mountpoint: Option<PathBuf>,
}

pub(super) fn run(args: &StatusArgs) -> Result<(), CliError> {
    let only = args.mountpoint.as_deref().map(locate).transpose()?;
    let found: Vec<MountEntry> = mounts()
        .map_err(|error| CliError::new(format!("/proc/self/mountinfo: {error}")))?
        .into_iter()
        .filter(|entry| entry.is_deltafs())
        .filter(|entry| only.as_ref().is_none_or(|path| *path == entry.mountpoint))
        .collect();
    if found.is_empty() {
        return Err(CliError::new(match only {
            Some(path) => format!("{} is not a mount of deltafs", path.display()),
            None => "nothing is mounted".to_owned(),
        }));
    }
    let mut unwell = 0;
    for entry in &found {
        let health = entry.health();
        if health != Health::Alive {
            unwell += 1;
        }
        output::line(&describe(entry, health, entry.daemon_pid()));
    }
    match unwell {
        0 => Ok(()),
        count => Err(
            CliError::new(format!("{count} of {} do not answer", found.len()))
                .hint("`deltafs umount` removes a dead mount, mounting again replaces it"),
        ),
    }
}

fn describe(entry: &MountEntry, health: Health, pid: Option<u32>) -> String {
    let state = match health {
        Health::Alive => "alive",
        Health::Dead => "dead",
        Health::Silent => "does not answer",
    };
    let mut line = format!(
        "{} on {}: {state}",
        entry.source.display(),
        entry.mountpoint.display()
    );
    if let Some(pid) = pid {
        line.push_str(&format!(", pid {pid}"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_source_place_state_and_process() {
        let entry = MountEntry {
            device: (0, 42),
            mountpoint: "/mnt/lake".into(),
            fs_type: "fuse.deltafs".to_owned(),
            source: "/w".into(),
        };
        assert_eq!(
            describe(&entry, Health::Alive, Some(7)),
            "/w on /mnt/lake: alive, pid 7"
        );
        assert_eq!(
            describe(&entry, Health::Dead, None),
            "/w on /mnt/lake: dead"
        );
    }
}
