//! Runs the cases: some at a time, each in its own directory and within its own time.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::fd::IntoRawFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::case::{Case, Cx, Live, Skip, poll, run_dir, wipe};
use crate::{cases, mount};

/// How long a case may take that doesn't ask for more.
const CASE_SECONDS: u64 = 120;
/// How long a case gets to end after its mounts were aborted and its programs killed.
const GRACE: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
pub(crate) struct Options {
    filters: Vec<String>,
    list: bool,
    jobs: usize,
    no_skip: bool,
    keep: bool,
}

impl Options {
    pub(crate) fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Options {
            jobs: 2,
            ..Options::default()
        };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--list" => options.list = true,
                "--no-skip" => options.no_skip = true,
                "--keep" => options.keep = true,
                "--jobs" => {
                    let jobs = words.next().and_then(|n| n.parse().ok());
                    options.jobs = jobs.filter(|n| *n > 0).ok_or("--jobs wants a number")?;
                }
                _ if word.starts_with('-') => return Err(format!("unknown option {word}")),
                _ => options.filters.push(word.to_owned()),
            }
        }
        Ok(options)
    }

    fn selects(&self, name: &str) -> bool {
        self.filters.is_empty()
            || self.filters.iter().any(|f| match f.strip_prefix('=') {
                Some(exact) => exact == name,
                None => name.contains(f.as_str()),
            })
    }
}

enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

/// What the first panic of a case said, by the case's name: its helper threads carry the same name.
fn panics() -> &'static Mutex<BTreeMap<String, String>> {
    static PANICS: OnceLock<Mutex<BTreeMap<String, String>>> = OnceLock::new();
    PANICS.get_or_init(Mutex::default)
}

fn record_panics() {
    std::panic::set_hook(Box::new(|info| {
        if info.payload().is::<Skip>() {
            return;
        }
        let said = info.payload_as_str().unwrap_or("a panic without words");
        let at = info.location().map(ToString::to_string).unwrap_or_default();
        let thread = thread::current().name().unwrap_or_default().to_owned();
        let mut panics = panics().lock().unwrap();
        panics.entry(thread).or_insert(format!("{at}: {said}"));
    }));
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let selected: Vec<Case> = cases::all()
        .into_iter()
        .filter(|case| options.selects(&case.name()))
        .collect();
    if options.list {
        for case in &selected {
            println!("{}", case.name());
        }
        return ExitCode::SUCCESS;
    }
    if let Err(problem) = mount::prepare() {
        eprintln!("mount-tests: {problem}");
        return ExitCode::from(2);
    }
    record_panics();
    clean_up_on_signals();

    let began = Instant::now();
    let queue = Mutex::new(selected.into_iter());
    let tally = Mutex::new([0_usize; 3]);
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                loop {
                    let Some(case) = queue.lock().unwrap().next() else {
                        return;
                    };
                    let began = Instant::now();
                    let outcome = match run_case(&case, options) {
                        Outcome::Skipped(why) if options.no_skip => {
                            Outcome::Failed(format!("skipped, which --no-skip forbids: {why}"))
                        }
                        outcome => outcome,
                    };
                    let (word, slot, note) = match outcome {
                        Outcome::Passed => ("ok  ", 0, String::new()),
                        Outcome::Failed(why) => {
                            failures.lock().unwrap().push((case.name(), why.clone()));
                            ("FAIL", 1, format!("\n{}", indent(&why)))
                        }
                        Outcome::Skipped(why) => ("skip", 2, format!(": {why}")),
                    };
                    tally.lock().unwrap()[slot] += 1;
                    let seconds = began.elapsed().as_secs_f64();
                    println!("{word} {} ({seconds:.1} s){note}", case.name());
                    std::io::stdout().flush().unwrap();
                }
            });
        }
    });

    let failures = failures.into_inner().unwrap();
    if !failures.is_empty() {
        println!("\nfailed:");
        for (name, why) in &failures {
            println!("  {name}: {}", why.lines().next().unwrap_or_default());
        }
    }
    println!("\nin {:.0} s", began.elapsed().as_secs_f64());
    match tally.into_inner().unwrap() {
        [passed, failed, 0] => println!("{passed} passed, {failed} failed"),
        [passed, failed, skipped] => {
            println!("{passed} passed, {failed} failed, {skipped} skipped")
        }
    }
    if !options.keep {
        wipe(run_dir(), false);
    }
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The end of a pipe that tells of signals.
static SIGNALLED: AtomicI32 = AtomicI32::new(-1);

extern "C" fn tell(_signal: i32) {
    let byte = [0_u8];
    // SAFETY: write is allowed in signal handlers, and the byte outlives the call.
    unsafe { libc::write(SIGNALLED.load(Ordering::Relaxed), byte.as_ptr().cast(), 1) };
}

/// A run that is interrupted leaves no mounts behind. A handler and no mask: programs would inherit that.
fn clean_up_on_signals() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    SIGNALLED.store(writer.into_raw_fd(), Ordering::Relaxed);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler does only what signal handlers may.
        unsafe { libc::signal(signal, tell as extern "C" fn(i32) as libc::sighandler_t) };
    }
    thread::spawn(move || {
        reader.read_exact(&mut [0]).unwrap();
        eprintln!("mount-tests: interrupted, cleaning up");
        // Cases that are in the middle of something may still mount and write.
        poll(Duration::from_secs(5), || {
            wipe(run_dir(), false);
            !run_dir().exists()
        });
        std::process::exit(130);
    });
}

/// Runs one case on a thread of its own, so that one that hangs can be broken up and left behind.
fn run_case(case: &Case, options: &Options) -> Outcome {
    let name = case.name();
    let live = Arc::new(Live::new(Duration::from_secs(CASE_SECONDS)));
    let (done, finished) = channel();
    let body = {
        let (name, run, live) = (name.clone(), case.run, Arc::clone(&live));
        let keep = options.keep;
        move || {
            let cx = Cx::new(&name, live);
            let result = catch_unwind(AssertUnwindSafe(|| run(&cx)));
            let outcome = match result {
                Ok(()) => cx
                    .daemon_panic()
                    .map_or(Outcome::Passed, |said| Outcome::Failed(said + &cx.logs())),
                Err(payload) => match payload.downcast::<Skip>() {
                    Ok(skip) => Outcome::Skipped(skip.0),
                    Err(_) => {
                        let said = panics().lock().unwrap().remove(&name);
                        let said = said.unwrap_or_else(|| "a panic without words".to_owned());
                        Outcome::Failed(said + &cx.logs())
                    }
                },
            };
            cx.clean_up(keep && matches!(outcome, Outcome::Failed(_)));
            // The runner may have given the case up by now.
            let _ = done.send(outcome);
        }
    };
    thread::Builder::new().name(name).spawn(body).unwrap();

    loop {
        match finished.recv_timeout(live.remaining()) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Timeout) if !live.remaining().is_zero() => {}
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => {
                return Outcome::Failed("the case's thread is gone".to_owned());
            }
        }
    }
    let broken = live.break_up();
    let limit = live.limit().as_secs();
    match finished.recv_timeout(GRACE) {
        Ok(Outcome::Failed(why)) => Outcome::Failed(format!(
            "took more than {limit} s; {broken}. Afterwards: {why}"
        )),
        Ok(_) => Outcome::Failed(format!("took more than {limit} s; {broken}")),
        Err(_) => Outcome::Failed(format!(
            "hangs: took more than {limit} s, and still does after: {broken}"
        )),
    }
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("     {line}\n")).collect()
}
