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

#[path = "../../../src/table/path.rs"]
mod table_path;

/// Of the tables, only the paths.
pub mod table {
    pub use crate::table_path::DataPath;
}

pub use libfuzzer_sys;

use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// Where the last panic was. Those that the code catches (`error::caught`) are no crash, so none is printed at once.
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// libFuzzer's own hook ends the process at every panic, caught or not.
pub fn init() {
    dump_overflows();
    std::panic::set_hook(Box::new(|panic| {
        let mut last = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner);
        *last = panic.to_string();
    }));
}

/// Lets libFuzzer's handler run when the stack is full, so that the input is kept: it takes over this flag.
fn dump_overflows() {
    const BYTES: usize = 1 << 20;
    let stack = libc::stack_t {
        ss_sp: Box::leak(vec![0_u8; BYTES].into_boxed_slice())
            .as_mut_ptr()
            .cast(),
        ss_flags: 0,
        ss_size: BYTES,
    };
    // SAFETY: the memory is never freed, and the default action needs no handler.
    unsafe {
        libc::sigaltstack(&stack, std::ptr::null_mut());
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        action.sa_flags = libc::SA_ONSTACK;
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

/// Refuses what libFuzzer's `-malloc_limit_mb` does only with a sanitizer: a piece of memory that no input justifies.
struct Limited;

/// Bytes that one allocation may have. By the format, a compressed page may claim 2 GiB, and the decoder reserves them.
const LIMIT: usize = 2200 << 20;

#[global_allocator]
static ALLOCATOR: Limited = Limited;

fn within_limit(bytes: usize) {
    if bytes > LIMIT {
        // No formatting: it could allocate.
        const WHAT: &[u8] = b"ALLOCATION beyond the limit\n";
        // SAFETY: writes a constant.
        unsafe { libc::write(2, WHAT.as_ptr().cast(), WHAT.len()) };
        std::process::abort();
    }
}

// SAFETY: `System` does all of the work.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        within_limit(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        within_limit(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        within_limit(bytes);
        unsafe { System.realloc(block, layout, bytes) }
    }
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
