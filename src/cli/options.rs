//! `-o` as mount(8) has it: `-o ro,allow_other,uid=1000`.
//!
//! Whatever the command line knows is also an option, because /etc/fstab has nothing else.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use crate::settings::TableFeatures;

/// What options said. The last word on something counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Options {
    pub(super) read_only: bool,
    pub(super) allow_other: bool,
    pub(super) noexec: bool,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) umask: Option<u16>,
    pub(super) file_mode: Option<u16>,
    pub(super) dir_mode: Option<u16>,
    pub(super) list_control: bool,
    pub(super) no_passthrough: bool,
    pub(super) refresh: Option<Duration>,
    pub(super) stage_dir: Option<PathBuf>,
    pub(super) cache_dir: Option<PathBuf>,
    pub(super) log_file: Option<PathBuf>,
    pub(super) table_features: Option<TableFeatures>,
    pub(super) transaction_idle: Option<Duration>,
    pub(super) transactions: Option<usize>,
    pub(super) transaction_files: Option<usize>,
}

/// Why options were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum OptionError {
    #[error("unknown mount option `{0}`")]
    Unknown(String),
    #[error("mount option `{name}={value}`: expected {expected}")]
    Value {
        name: String,
        value: String,
        expected: &'static str,
    },
    #[error("mount option `{0}` needs a value, as in `{0}=…`")]
    NoValue(String),
    #[error("`{0}` is not supported: unmount and mount again")]
    NotForUs(String),
}

/// Options that mount(8) passes on or that every file system has. We are `nosuid,nodev` in any case, times of access
/// are not kept, and everything is written when it is committed.
const ACCEPTED: &[&str] = &[
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "_netdev",
    "nofail",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "sync",
    "async",
    "dirsync",
    "default_permissions",
    "comment",
    "helper",
    "uhelper",
];

/// Takes in one comma-separated list. `sloppy` passes over what is unknown.
///
/// # Errors
/// Names the first option that is unknown or has a wrong value.
pub(super) fn parse(text: &str, sloppy: bool, into: &mut Options) -> Result<(), OptionError> {
    for option in text.split(',').filter(|option| !option.is_empty()) {
        match parse_one(option, into) {
            Err(OptionError::Unknown(_)) if sloppy => {}
            other => other?,
        }
    }
    Ok(())
}

fn parse_one(option: &str, into: &mut Options) -> Result<(), OptionError> {
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    };
    let given = || value.ok_or_else(|| OptionError::NoValue(name.to_owned()));
    let wrong = |expected| OptionError::Value {
        name: name.to_owned(),
        value: value.unwrap_or_default().to_owned(),
        expected,
    };
    let id = || given()?.parse().map_err(|_| wrong("a number"));
    let count = || given()?.parse().map_err(|_| wrong("a number"));
    let mode = || {
        u16::from_str_radix(given()?, 8)
            .ok()
            .filter(|mode| *mode <= 0o7777)
            .ok_or_else(|| wrong("permission bits in octal"))
    };
    match name {
        "ro" | "rw" => into.read_only = name == "ro",
        "exec" | "noexec" => into.noexec = name == "noexec",
        "allow_other" => into.allow_other = true,
        "uid" => into.uid = Some(id()?),
        "gid" => into.gid = Some(id()?),
        "umask" => into.umask = Some(mode()?),
        "fmode" => into.file_mode = Some(mode()?),
        "dmode" => into.dir_mode = Some(mode()?),
        "list_control" => into.list_control = true,
        "no_passthrough" => into.no_passthrough = true,
        "refresh" => {
            let millis = given()?.parse().map_err(|_| wrong("milliseconds"))?;
            into.refresh = Some(Duration::from_millis(millis));
        }
        "stage_dir" => into.stage_dir = Some(given()?.into()),
        "cache_dir" => into.cache_dir = Some(given()?.into()),
        "log_file" => into.log_file = Some(given()?.into()),
        "table_features" => {
            let features = TableFeatures::from_str(given()?, false)
                .map_err(|_| wrong("default, modern or minimal"))?;
            into.table_features = Some(features);
        }
        "transaction_idle" => {
            let seconds = given()?.parse().map_err(|_| wrong("seconds"))?;
            into.transaction_idle = Some(Duration::from_secs(seconds));
        }
        "transactions" => into.transactions = Some(count()?),
        "transaction_files" => into.transaction_files = Some(count()?),
        "remount" | "bind" | "rbind" | "move" => {
            return Err(OptionError::NotForUs(name.to_owned()));
        }
        _ if ACCEPTED.contains(&name) => {}
        // Comments for programs that read /etc/fstab.
        _ if name.starts_with("x-") || name.starts_with("X-") => {}
        _ => return Err(OptionError::Unknown(name.to_owned())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Options, OptionError> {
        let mut options = Options::default();
        parse(text, false, &mut options).map(|()| options)
    }

    #[test]
    fn every_option_of_ours_is_understood() {
        let options = parsed(
            "ro,noexec,allow_other,uid=1000,gid=100,umask=027,fmode=644,dmode=0755,list_control,no_passthrough,\
             refresh=250,stage_dir=/s,cache_dir=/c,log_file=/l,table_features=modern,transaction_idle=60,\
             transactions=3,transaction_files=7",
        )
        .unwrap();
        assert_eq!(
            options,
            Options {
                read_only: true,
                allow_other: true,
                noexec: true,
                uid: Some(1000),
                gid: Some(100),
                umask: Some(0o27),
                file_mode: Some(0o644),
                dir_mode: Some(0o755),
                list_control: true,
                no_passthrough: true,
                refresh: Some(Duration::from_millis(250)),
                stage_dir: Some("/s".into()),
                cache_dir: Some("/c".into()),
                log_file: Some("/l".into()),
                table_features: Some(TableFeatures::Modern),
                transaction_idle: Some(Duration::from_secs(60)),
                transactions: Some(3),
                transaction_files: Some(7),
            }
        );
    }

    #[test]
    fn what_fstab_and_mount_pass_on_is_accepted() {
        let text =
            "rw,nosuid,nodev,_netdev,user=me,users,noauto,x-systemd.automount,X-mount.mkdir=755,,";
        assert_eq!(parsed(text).unwrap(), Options::default());
        assert_eq!(parsed("defaults").unwrap(), Options::default());
        assert_eq!(parsed("").unwrap(), Options::default());
    }

    #[test]
    fn the_last_word_counts() {
        assert!(!parsed("ro,rw").unwrap().read_only);
        assert!(parsed("rw,ro").unwrap().read_only);
        assert_eq!(parsed("uid=1,uid=2").unwrap().uid, Some(2));
    }

    #[test]
    fn refusals_name_the_option() {
        for (text, message) in [
            ("allow_everybody", "unknown mount option `allow_everybody`"),
            ("ro,refrsh=5", "unknown mount option `refrsh`"),
            ("uid=me", "mount option `uid=me`: expected a number"),
            (
                "umask=9",
                "mount option `umask=9`: expected permission bits in octal",
            ),
            (
                "fmode=10000",
                "mount option `fmode=10000`: expected permission bits in octal",
            ),
            ("gid", "mount option `gid` needs a value, as in `gid=…`"),
            (
                "table_features=old",
                "mount option `table_features=old`: expected default, modern or minimal",
            ),
            (
                "remount,ro",
                "`remount` is not supported: unmount and mount again",
            ),
        ] {
            assert_eq!(parsed(text).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn sloppy_passes_over_unknown_names_but_not_wrong_values() {
        let mut options = Options::default();
        parse("whatever,ro", true, &mut options).unwrap();
        assert!(options.read_only);
        assert!(parse("uid=x", true, &mut options).is_err());
    }
}
