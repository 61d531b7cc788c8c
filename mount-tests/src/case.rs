//! What a case gets: its directory, its mounts, its programs, and the means to break them all up.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;

use crate::builder::Builder;
use crate::mount::{self, Mount};
use crate::shell::{self, Ran};
use crate::table::Table;
use crate::{batch, sample};

/// One test.
pub(crate) struct Case {
    area: &'static str,
    function: &'static str,
    pub(crate) run: fn(&Cx),
}

impl Case {
    pub(crate) const fn new(area: &'static str, function: &'static str, run: fn(&Cx)) -> Self {
        Case {
            area,
            function,
            run,
        }
    }

    pub(crate) fn name(&self) -> String {
        format!("{}::{}", self.area, self.function)
    }
}

/// `cases!("area": f, g)`: the list of a file's cases.
macro_rules! cases {
    ($area:literal: $($function:ident),* $(,)?) => {
        pub(crate) fn cases() -> Vec<$crate::case::Case> {
            vec![$($crate::case::Case::new($area, stringify!($function), $function)),*]
        }
    };
}
pub(crate) use cases;

/// A panic with this payload skips the case.
pub(crate) struct Skip(pub(crate) String);

/// What runs for a case right now, and until when it may.
#[derive(Debug)]
pub(crate) struct Live {
    began: Instant,
    limit: Mutex<Duration>,
    /// Process groups of running commands and daemons.
    groups: Mutex<Vec<i32>>,
    mounts: Mutex<Vec<PathBuf>>,
    logs: Mutex<Vec<PathBuf>>,
}

impl Live {
    pub(crate) fn new(limit: Duration) -> Self {
        Live {
            began: Instant::now(),
            limit: Mutex::new(limit),
            groups: Mutex::default(),
            mounts: Mutex::default(),
            logs: Mutex::default(),
        }
    }

    pub(crate) fn limit(&self) -> Duration {
        *self.limit.lock().unwrap()
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.limit().saturating_sub(self.began.elapsed())
    }

    pub(crate) fn started(&self, group: i32) {
        self.groups.lock().unwrap().push(group);
    }

    pub(crate) fn ended(&self, group: i32) {
        self.groups.lock().unwrap().retain(|g| *g != group);
    }

    pub(crate) fn mounted(&self, mountpoint: &Path) {
        self.mounts.lock().unwrap().push(mountpoint.to_owned());
    }

    /// Aborts the case's FUSE connections and kills its programs; says what it did, and what hung where.
    pub(crate) fn break_up(&self) -> String {
        let mut said = Vec::new();
        for group in self.groups.lock().unwrap().iter() {
            said.push(format!("process {group}:\n{}", mount::stacks(*group)));
        }
        for mountpoint in self.mounts.lock().unwrap().iter() {
            while let Some(device) = mount::device(mountpoint) {
                mount::abort(&device);
                mount::detach(mountpoint);
                said.push(format!("aborted {} ({device})", mountpoint.display()));
            }
        }
        for group in self.groups.lock().unwrap().iter() {
            // SAFETY: kill takes no pointers.
            unsafe { libc::kill(-group, libc::SIGKILL) };
            said.push(format!("killed process group {group}"));
        }
        if said.is_empty() {
            said.push("nothing was mounted or running".to_owned());
        }
        said.join(", ")
    }
}

/// The context of one running case. Everything it makes lives under `dir`:
/// `wh` the warehouse, `mnt` where it is mounted, `in` files to drop.
pub(crate) struct Cx {
    pub(crate) dir: PathBuf,
    name: String,
    live: Arc<Live>,
}

/// A new directory that other users can enter, too.
fn new_directory(parent: &Path, name: &str) -> PathBuf {
    let prefix = format!("{name}-");
    let dir = tempfile::Builder::new().prefix(&prefix).tempdir_in(parent);
    let dir = fs::canonicalize(dir.unwrap().keep()).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// Where the cases of this run live.
pub(crate) fn run_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| new_directory(&std::env::temp_dir(), "deltafs-tests"))
}

/// Ends everything that lives in a directory: daemons, mounts, and the directory itself.
pub(crate) fn wipe(dir: &Path, keep: bool) {
    mount::kill_daemons_below(dir);
    for mounted in mount::below(dir) {
        if let Some(device) = mount::device(&mounted) {
            mount::abort(&device);
        }
        mount::detach(&mounted);
    }
    if !keep && mount::below(dir).is_empty() {
        let _ = fs::remove_dir_all(dir);
    }
}

impl Cx {
    pub(crate) fn new(name: &str, live: Arc<Live>) -> Self {
        let dir = new_directory(run_dir(), &name.replace("::", "-"));
        for sub in ["wh", "in"] {
            fs::create_dir(dir.join(sub)).unwrap();
        }
        Cx {
            dir,
            name: name.to_owned(),
            live,
        }
    }

    /// Allows the case more than the usual time.
    pub(crate) fn time_limit(&self, seconds: u64) {
        *self.live.limit.lock().unwrap() = Duration::from_secs(seconds);
    }

    pub(crate) fn skip(&self, why: impl Into<String>) -> ! {
        std::panic::panic_any(Skip(why.into()))
    }

    pub(crate) fn live(&self) -> &Arc<Live> {
        &self.live
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.dir.join(relative)
    }

    // ---- tables and inputs

    /// The oracle's view of the table `wh/NAME`.
    pub(crate) fn table(&self, name: &str) -> Table {
        Table::at(self.dir.join("wh").join(name))
    }

    /// Starts a hand-written table `wh/NAME`.
    pub(crate) fn builder(&self, name: &str) -> Builder {
        Builder::new(self.dir.join("wh").join(name))
    }

    /// A table `wh/t` of orders 0..10 in one file, `base.parquet`, with deletion vectors enabled.
    pub(crate) fn orders(&self) -> Table {
        self.builder("t")
            .orders()
            .file("base.parquet", &batch::orders(0..10))
            .create()
    }

    /// Writes `in/NAME`.
    pub(crate) fn input(&self, name: &str, rows: &RecordBatch) -> PathBuf {
        let path = self.dir.join("in").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        sample::write_parquet(&path, rows);
        path
    }

    // ---- mounts

    /// Mounts `wh` at `mnt`.
    #[track_caller]
    pub(crate) fn mount(&self) -> Mount {
        self.mount_with(&[])
    }

    #[track_caller]
    pub(crate) fn mount_with(&self, arguments: &[&str]) -> Mount {
        self.mount_at("wh", "mnt", arguments)
    }

    /// Mounts a source at a directory, which is made if need be; both relative to the case's directory.
    #[track_caller]
    pub(crate) fn mount_at(&self, source: &str, mountpoint: &str, arguments: &[&str]) -> Mount {
        let log = self.new_log();
        let source = if source.contains("://") {
            source.to_owned()
        } else {
            self.dir.join(source).display().to_string()
        };
        Mount::start(
            &self.live,
            &source,
            &self.dir.join(mountpoint),
            arguments,
            log,
        )
    }

    /// A new file for a daemon's output, printed when the case fails.
    pub(crate) fn new_log(&self) -> PathBuf {
        let mut logs = self.live.logs.lock().unwrap();
        let log = self.dir.join(format!("daemon-{}.log", logs.len()));
        logs.push(log.clone());
        log
    }

    // ---- programs

    /// Runs a bash script (`set -euo pipefail`) in the case's directory. `$PY` is a python.
    pub(crate) fn sh(&self, script: &str) -> Ran {
        shell::run(
            self,
            "bash",
            &["-c", &format!("set -euo pipefail\n{script}")],
        )
    }

    /// Runs a python program that needs the standard library only.
    pub(crate) fn py(&self, program: &str) -> Ran {
        let python = shell::python();
        shell::run(self, &python, &["-c", program])
    }

    /// Runs a python program that imports the modules; skips the case where one is not installed.
    pub(crate) fn py_with(&self, modules: &[&str], program: &str) -> Ran {
        let python = shell::python();
        for module in modules {
            if !shell::has_module(&python, module) {
                self.skip(format!("{python} has no module {module}"));
            }
        }
        shell::run(self, &python, &["-c", program])
    }

    /// Skips the case where a program is not installed.
    pub(crate) fn need(&self, program: &str) {
        if !shell::installed(program) {
            self.skip(format!("{program} is not installed"));
        }
    }

    /// Runs the closures on threads at once; the first panic is the case's.
    pub(crate) fn together<T: Send>(
        &self,
        tasks: Vec<Box<dyn FnOnce() -> T + Send + '_>>,
    ) -> Vec<T> {
        thread::scope(|scope| {
            let running: Vec<_> = tasks
                .into_iter()
                .map(|task| {
                    let named = thread::Builder::new().name(self.name.clone());
                    named.spawn_scoped(scope, task).unwrap()
                })
                .collect();
            running.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    /// Polls until `holds`, for at most ten seconds.
    #[track_caller]
    pub(crate) fn eventually(&self, what: &str, holds: impl FnMut() -> bool) {
        self.within(Duration::from_secs(10), what, holds);
    }

    /// Polls until `holds`, and says what did not happen in time.
    #[track_caller]
    pub(crate) fn within(&self, time: Duration, what: &str, holds: impl FnMut() -> bool) {
        assert!(poll(time, holds), "not within {time:?}: {what}");
    }

    // ---- the end

    /// The line of a daemon's log that says it panicked.
    pub(crate) fn daemon_panic(&self) -> Option<String> {
        let logs = self.live.logs.lock().unwrap();
        logs.iter().find_map(|log| {
            let text = fs::read(log).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            let line = text.lines().find(|line| line.contains("panicked at"))?;
            Some(format!("the daemon panicked: {line}"))
        })
    }

    /// The ends of the daemons' logs.
    pub(crate) fn logs(&self) -> String {
        let mut said = String::new();
        for log in self.live.logs.lock().unwrap().iter() {
            let text = fs::read(log).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            // Looking for names that aren't there is what shells and tools do all the time.
            let lines = text
                .lines()
                .filter(|l| !l.contains("no such file or directory"));
            let lines: Vec<&str> = lines.collect();
            let name = log.file_name().unwrap().display();
            said += &format!("\n--- {name}, {} lines\n", lines.len());
            for line in &lines[lines.len().saturating_sub(40)..] {
                said += &format!("{line}\n");
            }
        }
        said
    }

    /// Detaches what is still mounted below the case's directory, then removes it.
    pub(crate) fn clean_up(&self, keep: bool) {
        wipe(&self.dir, keep);
        if keep {
            eprintln!("kept {}", self.dir.display());
        }
    }
}

/// Polls until `holds`; whether it did in time.
pub(crate) fn poll(time: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + time;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}
