//! Files and folders: whole or not at all, with rights from their first moment on.

use std::io::Write as _;

use dormer_host::ops::{ATTRIBUTE_READ_ONLY, Ace, Security, ServiceState};
use dormer_host_sim::SimulatedHost;
use dormer_profile::{
    answer::{FailureCode, ItemState},
    document::{ChangeClass, Document},
    item::{Directory, ItemKind, OnlyFolders, Sweep, VERSION_MARK},
    sha256_hex,
};

use crate::harness::{
    apply, assert_as_asked, assert_converged, code, detail, file, folder, item, node, of, plan,
    staged, state,
};

const KUBELET: &str = r"C:\k\kubelet.exe";
const USERS: &str = "S-1-5-32-545";
const SOMEBODY: &str = "S-1-5-21-1-2-3-1001";
const WRITES: u32 = 0x2 | 0x4 | 0x40 | 0x1_0000 | 0x4_0000 | 0x8_0000;

/// Who is allowed one of these rights, beside SYSTEM and administrators.
fn allowed(security: &Security, rights: u32) -> Vec<&str> {
    let entries = security.entries.as_ref().expect("an access list").iter();
    let others = entries.filter(|ace| {
        ace.mask & rights != 0 && !["S-1-5-18", "S-1-5-32-544"].contains(&ace.sid.as_str())
    });
    others.map(|ace| ace.sid.as_str()).collect()
}

fn upload(host: &mut SimulatedHost, content: &[u8], gzip: bool) {
    let name = sha256_hex(content);
    if gzip {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(content).expect("packed");
        host.put(
            &format!(r"C:\Windows\dormer\staging\{name}.gz"),
            &packed.finish().expect("packed"),
        );
    } else {
        host.put(&format!(r"C:\Windows\dormer\staging\{name}"), content);
    }
}

#[test]
fn nobody_but_administrators_may_write_where_our_programs_lie() {
    let mut host = SimulatedHost::new();
    // C:\ lets users make folders and write in all that inherits; nothing of ours does.
    assert_converged(&apply(&mut host, &node("v1")));
    let paths = host
        .paths(r"C:\k")
        .into_iter()
        .chain(host.paths(r"C:\Windows\dormer"));
    for path in paths {
        let path = path.trim_end_matches('\\');
        let security = host.security(path).expect("rights");
        assert_eq!(security.owner, "S-1-5-32-544", "{path}");
        assert_eq!(allowed(&security, WRITES), Vec::<&str>::new(), "{path}");
    }
    let kubelet = host.security(r"C:\k\v1\kubelet.exe").expect("rights");
    assert_eq!(
        allowed(&kubelet, 0x1),
        [USERS],
        "containers' users read and run it"
    );
    for path in [
        r"C:\k\bootstrap-kubeconfig",
        r"C:\var\lib\kubelet\pki",
        r"C:\Windows\dormer\state\fence.json",
    ] {
        let security = host.security(path).expect("rights");
        assert_eq!(allowed(&security, u32::MAX), Vec::<&str>::new(), "{path}");
    }
}

#[test]
fn the_kubelets_folder_keeps_the_rights_that_its_containers_inherit() {
    let mut host = SimulatedHost::new();
    assert_converged(&apply(
        &mut host,
        &of(vec![folder(r"C:\var\lib\kubelet\pods")]),
    ));
    let pods = host.security(r"C:\var\lib\kubelet\pods").expect("rights");
    assert_eq!(allowed(&pods, 0x1), [USERS]);
    // A container wrote there with its own rights, which is permitted.
    let theirs = Security {
        owner: SOMEBODY.into(),
        ..pods
    };
    host.set_security(r"C:\var\lib\kubelet\pods", theirs);
    assert_as_asked(&mut host, &of(vec![folder(r"C:\var\lib\kubelet\pods")]));
}

#[test]
fn containerds_own_folders_are_containerds() {
    let mut host = SimulatedHost::new();
    let root = Directory {
        path: r"C:\ProgramData\containerd\root".into(),
        keep: true,
    };
    let document = of(vec![item("directory:root", ItemKind::Directory(root))]);
    assert_converged(&apply(&mut host, &document));
    assert!(!host.has_folder(r"C:\ProgramData\containerd"));
}

#[test]
fn a_folder_of_somebody_else_is_put_aside_and_not_repaired() {
    let document = of(vec![folder(r"C:\k"), file(KUBELET, "MZ")]);
    let writer = Ace {
        allow: true,
        sid: USERS.into(),
        mask: 0x2,
        flags: 3,
    };
    for by_owner in [true, false] {
        let mut host = SimulatedHost::new();
        host.put(r"C:\k\version.dll", b"MZ planted");
        let found = host.security(r"C:\k").expect("rights");
        let theirs = if by_owner {
            Security {
                owner: SOMEBODY.into(),
                entries: Some(Vec::new()),
                ..found
            }
        } else {
            Security {
                entries: Some(vec![writer.clone()]),
                ..found
            }
        };
        host.set_security(r"C:\k", theirs);
        let differs = plan(&mut host, &document);
        assert_eq!(state(&differs, r"directory:C:\k"), ItemState::Differs);
        assert_converged(&apply(&mut host, &document));
        assert_eq!(
            host.file(r"C:\k\version.dll"),
            None,
            "nothing planted is in our folder"
        );
        assert!(
            host.file(r"C:\k.dormer-aside1\version.dll").is_some(),
            "and nothing is lost"
        );
        assert_as_asked(&mut host, &document);
    }
}

#[test]
fn a_private_folder_that_others_may_read_is_closed_with_what_is_in_it() {
    let mut host = SimulatedHost::new();
    let document = of(vec![folder(r"C:\k"), folder(r"C:\k\tls\certs")]);
    assert_converged(&apply(&mut host, &document));
    host.put(r"C:\k\tls\certs\tls.key", b"key");
    let open = Security {
        owner: "S-1-5-32-544".into(),
        protected: true,
        entries: Some(vec![Ace {
            allow: true,
            sid: USERS.into(),
            mask: 0x0012_00a9,
            flags: 3,
        }]),
    };
    host.set_security(r"C:\k\tls\certs", open.clone());
    host.set_security(r"C:\k\tls\certs\tls.key", open);
    assert!(detail(&plan(&mut host, &document), r"directory:C:\k\tls\certs").contains("may read"));
    assert_converged(&apply(&mut host, &document));
    for path in [r"C:\k\tls\certs", r"C:\k\tls\certs\tls.key"] {
        assert_eq!(
            allowed(&host.security(path).expect("rights"), u32::MAX),
            Vec::<&str>::new()
        );
    }
}

#[test]
fn only_true_links_are_refused() {
    // A deduplicated folder also has a reparse point, and is not a link.
    let mut host = SimulatedHost::new();
    host.put(r"C:\k\x", b"");
    host.link(r"C:\k", true, 0x8000_0013);
    let writers = host.security(r"C:\Windows").expect("rights");
    host.set_security(r"C:\k", writers);
    assert_converged(&apply(
        &mut host,
        &of(vec![folder(r"C:\k"), file(KUBELET, "MZ")]),
    ));
    let mut host = SimulatedHost::new();
    host.link(r"C:\k", true, 0xa000_0003);
    let answer = apply(&mut host, &of(vec![file(KUBELET, "MZ")]));
    assert_eq!(code(&answer), Some(FailureCode::AccessDenied));
}

#[test]
fn a_scanner_that_holds_new_files_is_waited_for() {
    let mut host = SimulatedHost::new();
    host.scanner(8_000);
    assert_converged(&apply(&mut host, &of(vec![file(KUBELET, "MZ")])));
    assert_eq!(host.file(KUBELET).as_deref(), Some(&b"MZ"[..]));
}

#[test]
fn a_file_that_stays_in_use_is_in_use_and_no_question_of_rights() {
    let mut host = SimulatedHost::new();
    assert_converged(&apply(&mut host, &of(vec![file(KUBELET, "one")])));
    host.hold(KUBELET, None, false);
    let failure = apply(&mut host, &of(vec![file(KUBELET, "two")]))
        .failure
        .expect("a failure");
    assert_eq!(
        (failure.code, failure.retry),
        (FailureCode::FileLocked, true)
    );
    assert_eq!(
        host.file(KUBELET).as_deref(),
        Some(&b"one"[..]),
        "and the old content is whole"
    );
    assert_eq!(host.paths(r"C:\k\").len(), 1, "{:?}", host.paths(r"C:\k\"));
}

#[test]
fn a_program_that_runs_is_renamed_aside_and_swept_when_it_has_ended() {
    let mut host = SimulatedHost::new();
    let document = |content| of(vec![file(r"C:\k\agent.exe", content)]);
    assert_converged(&apply(&mut host, &document("one")));
    host.spawn(r"C:\k\agent.exe");
    assert_converged(&apply(&mut host, &document("two")));
    assert_eq!(host.file(r"C:\k\agent.exe").as_deref(), Some(&b"two"[..]));
    assert_eq!(
        host.file(r"C:\k\agent.exe.dormer-old1").as_deref(),
        Some(&b"one"[..])
    );
    host.reboot();
    assert_converged(&apply(&mut host, &document("three")));
    assert_eq!(host.paths(r"C:\k\"), [r"C:\k\agent.exe"]);
}

#[test]
fn a_read_only_file_is_replaced_and_removed() {
    let mut host = SimulatedHost::new();
    assert_converged(&apply(&mut host, &of(vec![file(KUBELET, "one")])));
    host.set_attributes(KUBELET, ATTRIBUTE_READ_ONLY);
    assert_converged(&apply(&mut host, &of(vec![file(KUBELET, "two")])));
    host.set_attributes(KUBELET, ATTRIBUTE_READ_ONLY);
    assert_eq!(crate::harness::remove(&mut host).failure, None);
    assert_eq!(host.file(KUBELET), None);
}

#[test]
fn uploads_arrive_unpacked_and_are_used_up() {
    let content = b"MZ kubelet, quite large";
    let document = of(vec![staged(KUBELET, content)]);
    for gzip in [false, true] {
        let mut host = SimulatedHost::new();
        let answer = apply(&mut host, &document);
        assert_eq!(code(&answer), Some(FailureCode::FileMissing));
        assert_eq!(answer.missing_files, [KUBELET]);
        assert_eq!(plan(&mut host, &document).missing_files, [KUBELET]);
        upload(&mut host, content, gzip);
        assert_converged(&apply(&mut host, &document));
        assert_eq!(host.file(KUBELET).as_deref(), Some(&content[..]));
        assert_eq!(
            host.paths(r"C:\Windows\dormer\staging\"),
            Vec::<String>::new()
        );
    }
}

#[test]
fn a_damaged_upload_is_thrown_away() {
    let content = b"MZ kubelet";
    let document = of(vec![staged(KUBELET, content)]);
    let name = format!(r"C:\Windows\dormer\staging\{}", sha256_hex(content));
    for (path, bytes) in [
        (name.clone(), &b"MZ other"[..]),
        (format!("{name}.gz"), b"no gzip"),
    ] {
        let mut host = SimulatedHost::new();
        host.put(&path, bytes);
        assert_eq!(
            code(&apply(&mut host, &document)),
            Some(FailureCode::HashMismatch)
        );
        assert_eq!(host.file(&path), None);
        assert_eq!(apply(&mut host, &document).missing_files, [KUBELET]);
        assert_eq!(
            host.paths(r"C:\k\"),
            Vec::<String>::new(),
            "nothing half is left"
        );
    }
}

#[test]
fn a_full_disk_is_named_and_leaves_nothing_half() {
    let mut host = SimulatedHost::new();
    assert_converged(&apply(&mut host, &of(vec![file(KUBELET, "one")])));
    host.set_free(2_000);
    let answer = apply(&mut host, &of(vec![file(KUBELET, &"x".repeat(5_000))]));
    assert_eq!(code(&answer), Some(FailureCode::DiskFull));
    assert_eq!(host.file(KUBELET).as_deref(), Some(&b"one"[..]));
    assert_eq!(host.paths(r"C:\k\").len(), 1);
}

#[test]
fn a_file_that_a_scanner_takes_away_is_missed() {
    let mut host = SimulatedHost::new();
    host.quarantine(r"\kubelet.exe");
    let answer = apply(&mut host, &of(vec![file(KUBELET, "MZ")]));
    assert_eq!(code(&answer), Some(FailureCode::QuarantineSuspected));
}

#[test]
fn names_that_windows_would_change_are_refused_before_anything_is_done() {
    for path in [
        r"C:\k\nul.txt",
        r"C:\k\x:stream",
        r"C:\k\x.",
        r"C:\PROGRA~1\x",
        r"C:\k\..\x",
    ] {
        let mut host = SimulatedHost::new();
        let answer = apply(&mut host, &of(vec![folder(r"C:\k"), file(path, "x")]));
        assert_eq!(code(&answer), Some(FailureCode::DocumentRejected), "{path}");
        assert!(!host.has_folder(r"C:\k"));
    }
}

#[test]
fn old_version_folders_go_whole_or_stay_whole() {
    let mut host = SimulatedHost::new();
    for version in ["v1", "v2", "v3", "theirs"] {
        host.put(&format!(r"C:\k\{version}\kubelet.exe"), b"MZ");
        if version != "theirs" {
            host.put(&format!(r"C:\k\{version}\{VERSION_MARK}"), b"");
        }
    }
    let sweep = Sweep {
        under: r"C:\k".into(),
        keep: vec!["V3".into()],
    };
    let document = of(vec![item("sweep", ItemKind::Sweep(sweep))]);
    assert_eq!(
        detail(&plan(&mut host, &document), "sweep"),
        r"C:\k\v1, C:\k\v2"
    );
    host.spawn(r"C:\k\v1\kubelet.exe");
    assert_eq!(detail(&apply(&mut host, &document), "sweep"), r"C:\k\v2");
    assert!(
        host.file(&format!(r"C:\k\v1\{VERSION_MARK}")).is_some(),
        "what runs is left whole"
    );
    assert!(host.has_folder(r"C:\k\v3") && host.has_folder(r"C:\k\theirs"));
}

#[test]
fn folders_beside_those_that_stay_go() {
    let mut host = SimulatedHost::new();
    for name in ["docker.io", "old.example"] {
        host.put(&format!(r"C:\k\registries\{name}\hosts.toml"), b"");
    }
    let only = OnlyFolders {
        under: r"C:\k\registries".into(),
        keep: vec!["Docker.io".into()],
    };
    let document = of(vec![item("only", ItemKind::OnlyFolders(only))]);
    assert_converged(&apply(&mut host, &document));
    assert!(host.has_folder(r"C:\k\registries\docker.io"));
    assert!(!host.has_folder(r"C:\k\registries\old.example"));
}

#[test]
fn a_file_whose_content_is_not_sent_now_stays_as_it_is() {
    let mut host = SimulatedHost::new();
    let path = r"C:\k\bootstrap-kubeconfig";
    let all = of(vec![
        folder(r"C:\k"),
        file(path, "token"),
        file(r"C:\k\a", "a"),
    ]);
    assert_converged(&apply(&mut host, &all));
    let without = |kept: &[&str]| Document {
        kept: kept.iter().map(|path| (*path).to_owned()).collect(),
        ..of(vec![folder(r"C:\k"), file(r"C:\k\a", "a")])
    };
    assert_converged(&apply(&mut host, &without(&[path])));
    assert_eq!(host.file(path), Some(b"token".to_vec()));
    assert_converged(&apply(&mut host, &without(&[])));
    assert_eq!(host.file(path), None);
}

/// A node that another program made: services run out of a folder whose rights were inherited.
#[test]
fn services_that_run_out_of_a_folder_which_is_put_aside_stop_first_and_run_again() {
    let mut host = SimulatedHost::with_containers();
    let document = node("v1");
    assert_converged(&apply(&mut host, &document));
    let found = host.security(r"C:\k").expect("rights");
    let inherited = Security {
        owner: SOMEBODY.into(),
        ..found
    };
    host.set_security(r"C:\k", inherited);

    let differs = plan(&mut host, &document);
    let folder = differs.items.iter().find(|one| one.id == r"directory:C:\k");
    let folder = folder.expect("the folder");
    assert_eq!(
        (folder.state, folder.change),
        (ItemState::Differs, Some(ChangeClass::Drain)),
        "nothing of it is done beside pods"
    );
    let before = host.stops().len();
    let running =
        |host: &SimulatedHost, name: &str| host.service_state(name) == Some(ServiceState::Running);
    assert!(running(&host, "kubelet") && running(&host, "containerd"));
    assert_converged(&apply(&mut host, &document));
    assert!(host.stops().len() > before, "{:?}", host.stops());
    assert!(host.has_folder(r"C:\k.dormer-aside1"));
    assert!(running(&host, "kubelet") && running(&host, "containerd"));
    assert_as_asked(&mut host, &document);
}
