//! `deltafs mount`, `umount`, `status`: when they return, what they refuse, and what death leaves behind.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::process::Stdio;
use std::time::Duration;

use crate::batch::orders;
use crate::case::{Cx, cases};
use crate::mount;
use crate::shell::{self, ENOTCONN, EROFS};

cases!("lifecycle":
    usable_when_mount_returns,
    umount_leaves_nothing,
    umount_of_nothing_fails,
    mount_releases_its_pipes,
    sigterm,
    sigterm_while_busy_detaches,
    mount_over_a_dead_mount,
    second_mount_sees_commits_of_the_first,
    read_only,
    bad_mountpoints_refused,
    bad_sources_refused,
    bad_options_refused,
    foreground,
    status,
    source_is_one_table,
    file_url,
    trailing_slashes_and_relative_paths,
    owner_and_mode_options,
    permissions_hold_for_other_users,
    help_and_version,
);

fn usable_when_mount_returns(cx: &Cx) {
    cx.orders();
    for _ in 0..10 {
        let mount = cx.mount();
        assert_eq!(cx.sh("ls mnt/t").ok(), "base.parquet\n");
        mount.umount();
    }
}

fn umount_leaves_nothing(cx: &Cx) {
    cx.orders();
    cx.mount().umount();
    assert_eq!(cx.sh("ls -A mnt").ok(), "");
    cx.sh("deltafs umount mnt").fails("mnt");
}

fn umount_of_nothing_fails(cx: &Cx) {
    cx.sh("mkdir mnt");
    cx.sh("deltafs umount mnt").fails("mnt");
    cx.sh("deltafs umount nosuch").fails("nosuch");
    // Never the mount of somebody else.
    cx.sh("deltafs umount /proc").fails("/proc");
}

/// `$(deltafs mount …)` must end: the daemon keeps nothing of its caller open.
fn mount_releases_its_pipes(cx: &Cx) {
    cx.orders();
    cx.sh("mkdir mnt; timeout 20 bash -c 'out=$(deltafs mount wh mnt 2>&1) && ls mnt/t'")
        .ok();
    cx.sh("deltafs umount mnt").ok();
}

fn sigterm(cx: &Cx) {
    cx.orders();
    let m = cx.mount();
    mount::signal(m.pid(), libc::SIGTERM);
    cx.eventually("SIGTERM unmounts and ends the daemon", || {
        !m.is_mounted() && !m.is_running()
    });
}

fn sigterm_while_busy_detaches(cx: &Cx) {
    let table = cx.orders();
    let m = cx.mount();
    let name = m.path.join("t/base.parquet");
    let expected = fs::read(table.path.join("base.parquet")).unwrap();
    let file = File::open(name).unwrap();
    mount::signal(m.pid(), libc::SIGTERM);
    cx.eventually("SIGTERM detaches a busy mount", || !m.is_mounted());
    let mut found = vec![0; expected.len()];
    file.read_exact_at(&mut found, 0)
        .expect("an open file stays readable after a lazy unmount");
    assert_eq!(found, expected);
    drop(file);
    cx.eventually("the daemon ends after the last close", || !m.is_running());
}

fn mount_over_a_dead_mount(cx: &Cx) {
    cx.orders();
    cx.input("x.parquet", &orders(100..110));
    let dead = cx.mount();
    dead.kill();
    cx.sh("ls mnt").fails(ENOTCONN);
    let m = cx.mount();
    cx.sh("ls mnt/t && cp in/x.parquet mnt/t/").ok();
    assert_eq!(cx.table("t").version(), 1);
    m.umount();
    drop(dead);
}

fn second_mount_sees_commits_of_the_first(cx: &Cx) {
    cx.orders();
    cx.input("x.parquet", &orders(100..110));
    let _a = cx.mount_at("wh", "a", &[]);
    let b = cx.mount_at("wh", "b", &[]);
    // Asked before, so that a cached "not there" would show.
    cx.sh("cat b/t/.delta/version b/t/base.parquet > out; test ! -e b/t/x.parquet; ls b/t")
        .ok();
    cx.sh("cp in/x.parquet a/t/ && cmp in/x.parquet a/t/x.parquet")
        .ok();
    assert_eq!(
        cx.sh("cat a/t/.delta/version").ok(),
        "1\n",
        "one's own commit at once"
    );
    let x = b.path.join("t/x.parquet");
    let version = b.path.join("t/.delta/version");
    cx.within(
        Duration::from_secs(3),
        "the other mount's commit (refresh: 1 s)",
        || x.exists() && fs::read_to_string(&version).unwrap() == "1\n",
    );
    cx.sh("cmp in/x.parquet b/t/x.parquet; test \"$(ls b/t | wc -l)\" = 2")
        .ok();
    cx.sh("rm b/t/base.parquet").ok();
    cx.within(Duration::from_secs(3), "the other mount's removal", || {
        !cx.path("a/t/base.parquet").exists()
    });
    // A table that appears.
    cx.sh("mkdir a/new && cp in/x.parquet a/new/").ok();
    cx.within(
        Duration::from_secs(3),
        "the other mount's new table",
        || b.path.join("new/x.parquet").exists(),
    );
}

fn read_only(cx: &Cx) {
    cx.orders();
    cx.input("x.parquet", &orders(100..110));
    let _m = cx.mount_with(&["-o", "ro"]);
    cx.sh("cmp wh/t/base.parquet mnt/t/base.parquet").ok();
    for script in [
        "cp in/x.parquet mnt/t/",
        "rm mnt/t/base.parquet",
        "mkdir mnt/new",
        "echo 'id = 1' > mnt/t/.delta/ctl/delete",
        "touch mnt/t/.x",
        "mv mnt/t/base.parquet mnt/t/.base",
        "cp in/x.parquet mnt/t/.delta/in/append/",
    ] {
        cx.sh(script).fails(EROFS);
    }
    assert_eq!(cx.table("t").version(), 0);
    assert_eq!(
        cx.sh("ls wh/t").ok(),
        "_delta_log\nbase.parquet\n",
        "nothing is left in the warehouse"
    );
}

fn bad_mountpoints_refused(cx: &Cx) {
    cx.orders();
    cx.sh("touch file; mkdir busy; ln -s nowhere dangling").ok();
    cx.sh("deltafs mount wh file").fails("file");
    cx.sh("deltafs mount wh nosuch").fails("nosuch");
    cx.sh("deltafs mount wh dangling").fails("dangling");
    let _m = cx.mount_at("wh", "busy", &[]);
    cx.sh("deltafs mount wh busy").fails("busy");
    assert_eq!(mount::below(&cx.dir).len(), 1, "nothing was stacked");
    cx.sh("ls busy/t").ok();
}

fn bad_sources_refused(cx: &Cx) {
    cx.sh("mkdir mnt; touch file").ok();
    cx.sh("deltafs mount nosuch mnt").fails("nosuch");
    cx.sh("deltafs mount file mnt").fails("file");
    cx.sh("deltafs mount nosuch://bucket/x mnt").fails("nosuch");
    cx.sh("deltafs mount file:///no/such/dir mnt")
        .fails("/no/such/dir");
    assert!(mount::below(&cx.dir).is_empty());
}

fn bad_options_refused(cx: &Cx) {
    cx.sh("mkdir mnt").ok();
    cx.sh("deltafs mount -o nosuchoption wh mnt")
        .fails("nosuchoption");
    cx.sh("deltafs mount -o uid=nobody-knows wh mnt")
        .fails("uid");
    cx.sh("deltafs mount --nosuch wh mnt").fails("nosuch");
    cx.sh("deltafs mount --table-features=nosuch wh mnt")
        .fails("nosuch");
    assert!(mount::below(&cx.dir).is_empty());
}

fn foreground(cx: &Cx) {
    cx.orders();
    cx.sh("mkdir mnt").ok();
    let log = File::create(cx.new_log()).unwrap();
    let mut command = shell::command(&cx.dir, mount::binary().to_str().unwrap());
    let mut daemon = command
        .args(["mount", "-f", "wh", "mnt"])
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let pid = daemon.id().cast_signed();
    cx.live().started(pid);
    let mountpoint = cx.path("mnt");
    cx.eventually("mounted", || mount::device(&mountpoint).is_some());
    cx.eventually("usable", || mountpoint.join("t/base.parquet").exists());
    assert!(
        daemon.try_wait().unwrap().is_none(),
        "-f stays in the foreground"
    );
    mount::signal(pid, libc::SIGTERM);
    let status = daemon.wait().unwrap();
    cx.live().ended(pid);
    assert_eq!(status.code(), Some(0), "exit status after SIGTERM");
    assert!(mount::device(&mountpoint).is_none());
}

fn status(cx: &Cx) {
    cx.orders();
    let mountpoint = cx.path("mnt").display().to_string();
    let m = cx.mount();
    // Other cases may have dead mounts, of which `status` complains.
    let shown = cx.sh("deltafs status").out;
    let line = shown.lines().find(|line| line.contains(&mountpoint));
    let line = line.unwrap_or_else(|| panic!("`status` does not list {mountpoint}: {shown}"));
    assert!(
        line.contains("wh"),
        "`status` does not tell the source: {line}"
    );
    m.umount();
    assert!(!cx.sh("deltafs status").out.contains(&mountpoint));
}

fn source_is_one_table(cx: &Cx) {
    let table = cx.orders();
    cx.input("x.parquet", &orders(100..110));
    let m = cx.mount_at("wh/t", "mnt", &[]);
    assert_eq!(cx.sh("ls -A mnt").ok(), "base.parquet\n");
    assert_eq!(cx.sh("cat mnt/.delta/version").ok(), "0\n");
    cx.sh("cp in/x.parquet mnt/ && cmp in/x.parquet mnt/x.parquet")
        .ok();
    cx.sh("echo 'id < 5' > mnt/.delta/ctl/delete").ok();
    assert_eq!(table.version(), 2);
    assert_eq!(table.ids(), (5..10).chain(100..110).collect::<Vec<_>>());
    m.umount();
}

fn file_url(cx: &Cx) {
    cx.sh("mkdir 'wh/a b%'").ok();
    cx.builder("a b%/t")
        .orders()
        .file("x.parquet", &orders(0..3))
        .create();
    let url = format!("file://{}/wh/a%20b%25", cx.dir.display());
    let m = cx.mount_at(&url, "mnt", &[]);
    assert_eq!(cx.sh("ls mnt; ls mnt/t").ok(), "t\nx.parquet\n");
    m.umount();
}

fn trailing_slashes_and_relative_paths(cx: &Cx) {
    cx.orders();
    cx.sh("mkdir mnt mnt2 link-target; ln -s link-target link")
        .ok();
    for (source, mountpoint) in [
        ("wh/", "mnt/"),
        ("./wh//", "../$(basename $PWD)/mnt2"),
        ("wh", "link"),
    ] {
        let script = format!(
            "deltafs mount {source} {mountpoint} && ls {mountpoint}/t && deltafs umount {mountpoint}"
        );
        assert_eq!(cx.sh(&script).ok(), "base.parquet\n");
    }
}

fn owner_and_mode_options(cx: &Cx) {
    let table = cx.orders();
    cx.sh("chmod 640 wh/t/base.parquet; chown 7:8 wh/t/base.parquet")
        .ok();
    let m = cx.mount();
    let shown = "stat -c '%u %g %a' mnt/t/base.parquet";
    assert_eq!(
        cx.sh(shown).ok(),
        "7 8 640\n",
        "owner and mode are the backing file's"
    );
    m.umount();
    let m = cx.mount_with(&["-o", "uid=1234,gid=4321,umask=027"]);
    let found = fs::metadata(m.path.join("t/base.parquet")).unwrap();
    assert_eq!((found.uid(), found.gid()), (1234, 4321), "uid= and gid=");
    assert_eq!(found.mode() & 0o027, 0, "umask=");
    drop(m);
    assert_eq!(
        fs::metadata(table.path.join("base.parquet")).unwrap().uid(),
        7
    );
}

/// `default_permissions`: what the backing files forbid, the mount forbids.
fn permissions_hold_for_other_users(cx: &Cx) {
    cx.need("setpriv");
    cx.orders();
    cx.input("x.parquet", &orders(100..110));
    cx.sh("chmod -R a+rX wh in; chmod 600 wh/t/base.parquet")
        .ok();
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let _m = cx.mount_with(&["-o", "allow_other"]);
    cx.sh(&format!("{nobody} ls mnt/t")).ok();
    for attempt in [
        "cat mnt/t/base.parquet",
        "cp in/x.parquet mnt/t/",
        "rm -f mnt/t/base.parquet",
        "bash -c 'echo TRUE > mnt/t/.delta/ctl/delete'",
        "mkdir mnt/new",
    ] {
        cx.sh(&format!("{nobody} {attempt}"))
            .fails("Permission denied");
    }
    assert_eq!(cx.table("t").version(), 0);
}

fn help_and_version(cx: &Cx) {
    for script in ["deltafs --help", "deltafs mount --help"] {
        assert!(cx.sh(script).ok().contains("mount"), "{script}");
    }
    assert!(cx.sh("deltafs --version").ok().starts_with("deltafs "));
}
