//! The layers of deltafs that read bytes of others, compiled for libFuzzer without those above. What must hold is in
//! `src/testkit/fuzz`, which the tests of deltafs run on the seeds.

#[path = "../../../src/datafile/mod.rs"]
pub mod datafile;
#[path = "../../../src/deletion_vector/mod.rs"]
pub mod deletion_vector;
#[path = "../../../src/env.rs"]
pub mod env;
#[path = "../../../src/error.rs"]
pub mod error;
#[path = "../../../src/testkit/fuzz/mod.rs"]
mod fuzz;
#[path = "../../../src/log/mod.rs"]
pub mod log;
#[path = "../../../src/schema/mod.rs"]
pub mod schema;
#[path = "../../../src/store/mod.rs"]
pub mod store;

/// Of the tables, only the paths.
pub mod table {
    #[path = "../../../../src/table/path.rs"]
    mod path;
    pub use path::DataPath;
}

pub use libfuzzer_sys;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// Where the last panic was. Those that the code catches (`error::caught`) are no crash, so none is printed at once.
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// libFuzzer's own hook ends the process at every panic, caught or not.
pub fn init() {
    std::panic::set_hook(Box::new(|panic| {
        let mut last = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner);
        *last = panic.to_string();
    }));
}

/// Runs the target `name`; a panic that comes out of it ends the process.
pub fn run(name: &str, data: &[u8]) {
    let target = fuzz::TARGETS.iter().find(|(known, _)| *known == name);
    let Some((_, target)) = target else {
        eprintln!("no target {name}");
        std::process::abort();
    };
    if catch_unwind(AssertUnwindSafe(|| target(data))).is_err() {
        let last = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner);
        eprintln!("{last}");
        std::process::abort();
    }
}

/// The entry points of one target.
#[macro_export]
macro_rules! target {
    ($name:literal) => {
        $crate::libfuzzer_sys::fuzz_target!(init: $crate::init(), |data: &[u8]| {
            $crate::run($name, data);
        });
    };
}
