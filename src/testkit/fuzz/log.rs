//! The files of `_delta_log`.

use super::file_of;
use crate::error::{Failure as _, Kind};
use crate::log::{
    Action, CheckpointAction, CheckpointOptions, Crc, LastCheckpoint, LogError, parse_commit,
    read_checkpoint, read_json_manifest, write_classic, write_commit,
};

/// A name for messages.
const FILE: &str = "hostile";

/// A commit: what we parse, we write so that it is parsed as the same.
pub(super) fn commit_json(data: &[u8]) {
    let actions = match parse_commit(FILE, data) {
        Ok(actions) => actions,
        Err(error) => return explained(&error),
    };
    let body = write_commit(&actions);
    let lines = body.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(lines, actions.len(), "an action is a line");
    if !actions.is_empty() {
        let again = parse_commit(FILE, &body).unwrap();
        assert_eq!(again, actions);
        assert_eq!(write_commit(&again), body);
    }
    for action in &actions {
        if let Action::Add(add) = action {
            let remove = add.to_remove(0, true);
            assert_eq!(remove.path, add.path);
            assert_eq!(remove.deletion_vector, add.deletion_vector);
            assert_eq!(remove.base_row_id, add.base_row_id);
        }
    }
}

/// A manifest in JSON: its actions are those that a commit with the same lines has.
pub(super) fn json_manifest(data: &[u8]) {
    let mut actions = Vec::new();
    let read = read_json_manifest(FILE, data, &mut |action| {
        if let CheckpointAction::Action(action) = action {
            actions.push(action);
        }
        Ok(())
    });
    match (read, parse_commit(FILE, data)) {
        (Ok(()), Ok(parsed)) => assert_eq!(actions, parsed),
        (Ok(()), Err(error)) => assert!(matches!(error, LogError::Empty { .. }), "{error}"),
        (Err(error), _) => explained(&error),
    }
}

/// A checkpoint in Parquet. Its actions, written again, are read as the same.
pub(super) fn checkpoint(data: &[u8]) {
    let Some(actions) = actions_of(data) else {
        return;
    };
    let once = written(actions.clone());
    let adds = |actions: &[Action]| -> Vec<Action> {
        let mut adds = actions.to_vec();
        adds.retain(|action| matches!(action, Action::Add(_)));
        for action in &mut adds {
            if let Action::Add(add) = action {
                add.data_change = false;
            }
        }
        adds
    };
    assert_eq!(adds(&once), adds(&actions));
    assert_eq!(written(once.clone()), once);
}

/// As many as a test of a round trip needs.
const MANY_ACTIONS: usize = 500;

fn actions_of(data: &[u8]) -> Option<Vec<Action>> {
    let mut actions = Vec::new();
    let read = read_checkpoint(FILE, file_of(data), &mut |action| {
        if let CheckpointAction::Action(action) = action
            && actions.len() < MANY_ACTIONS
        {
            actions.push(action);
        }
        Ok(())
    });
    if let Err(error) = &read {
        explained(error);
    }
    read.ok().map(|()| actions)
}

fn written(actions: Vec<Action>) -> Vec<Action> {
    let options = CheckpointOptions {
        write_stats_json: true,
        parsed: None,
    };
    let mut bytes = Vec::new();
    write_classic(&mut bytes, actions.into_iter(), &options).unwrap();
    actions_of(&bytes).unwrap()
}

/// `_last_checkpoint`: what we take from it, we write so that it is read as the same, with a checksum that finds a
/// change.
pub(super) fn last_checkpoint(data: &[u8]) {
    let Ok(hint) = LastCheckpoint::parse(data) else {
        return;
    };
    let text = hint.to_json();
    assert_eq!(LastCheckpoint::parse(text.as_bytes()).as_ref(), Ok(&hint));
    let other = LastCheckpoint {
        version: hint.version ^ 1,
        ..hint.clone()
    };
    let number = |hint: &LastCheckpoint| format!("{{\"version\":{},", hint.version);
    let lie = text.replacen(&number(&hint), &number(&other), 1);
    assert!(LastCheckpoint::parse(lie.as_bytes()).is_err(), "{lie}");
}

/// `V.crc`: what is parsed is written as the same.
pub(super) fn crc(data: &[u8]) {
    if let Ok(crc) = Crc::parse(data) {
        assert_eq!(Crc::parse(crc.to_json().as_bytes()).as_ref(), Ok(&crc));
    }
}

/// Bytes that are no log are damage, and the message names the file.
fn explained(error: &LogError) {
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    assert!(error.to_string().contains(FILE), "{error}");
}
