use std::path::{Path, PathBuf};

use super::{TARGETS, seeds};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/fuzz/seeds")
}

/// The bytes of every seed of a target, by name.
fn stored(target: &str) -> Vec<(String, Vec<u8>)> {
    let mut seeds: Vec<_> = std::fs::read_dir(folder().join(target))
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect();
    seeds.sort();
    seeds
}

/// What the fuzzer starts from, and what it has found, on a thread with a stack as those of the mount have.
#[test]
fn every_seed_holds() {
    for (name, target) in TARGETS {
        let seeds = stored(name);
        assert!(seeds.len() > 3, "{name} has no seeds");
        for (seed, bytes) in seeds {
            let run = std::thread::Builder::new()
                .name(format!("{name}/{seed}"))
                .stack_size(2 << 20)
                .spawn(move || target(&bytes));
            let ended = run.unwrap().join();
            assert!(ended.is_ok(), "{name}/{seed}");
        }
    }
}

#[test]
fn every_target_has_a_binary() {
    let manifest = include_str!("../../../scripts/fuzz/Cargo.toml");
    for (name, _) in TARGETS {
        assert!(
            manifest.contains(&format!("path = \"targets/{name}.rs\"")),
            "{name}"
        );
        let source = folder().join(format!("../targets/{name}.rs"));
        let source = std::fs::read_to_string(source).unwrap();
        assert!(source.contains(&format!("target!(\"{name}\")")), "{name}");
    }
}

/// Seeds by which a target gets into every part of its code: `cargo test --lib write_seeds -- --ignored`.
#[test]
#[ignore = "writes into the source tree"]
fn write_seeds() {
    for (target, name, bytes) in seeds::all() {
        let folder = folder().join(target);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}
