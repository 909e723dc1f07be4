//! Rotations on simulated hosts, over their sshd and SFTP, on a paused clock: a fleet of fifty, wrong keys, and a power cut
//! of the command at each point where it waits.

use super::{
    KeyReport,
    cluster::{KeyText, KeyedCluster},
    report::KeyOutcome,
    rotate, take_away,
};
use dormer_client::Failure;
use dormer_fleet::{
    World, WorldConfig,
    api::User,
    host::{Host, HostPhase, admin_keys::KEY_FILE},
};
use dormer_lab::pipe::{Reach, client};
use dormer_profile::userdata::user_data;
use dormer_run::{PREVIOUS_KEY, SECRET_KEY};
use dormer_testkit::{KeyKind, SshKey, test_dir};
use dormer_workers::{
    kubernetes::keys::{HOST_KEY, IGNORE},
    ssh::{Key, Limits, Session, key_file::permits},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};
use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

const HOME: &str = "dormer";
pub(super) const MACHINES: &str = "openshift-machine-api";
/// A simulated cluster whose hosts are up and pinned, as dormer leaves them.
pub(super) struct Fleet {
    pub(super) world: World,
    pub(super) site: KeyedCluster,
}

/// Who wrote the user data of the machines.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum UserData {
    Ours,
    /// The Windows Machine Config Operator, whose script writes the whole file.
    Others,
}

impl Fleet {
    pub(super) async fn of(machines: usize, by: UserData) -> Self {
        let config = WorldConfig {
            linux: false,
            workload: false,
            ..WorldConfig::in_memory(0)
        };
        let world = World::start(config).await.expect("a world");
        let token = world.token_for(User::admin());
        let site = KeyedCluster {
            client: client(world.api.connector(None), &token).expect("a client"),
            namespace: HOME.into(),
            secret: "cloud-private-key".into(),
            machine_namespace: MACHINES.into(),
            dialer: Arc::new(Reach {
                dialer: world.host_dialer(),
                port: 22,
            }),
            limits: Limits::default(),
        };
        let fleet = Self { world, site };
        if by == UserData::Ours {
            fleet.write_user_data(&fleet.old()).await;
        }
        let gvk = GroupVersionKind::gvk("machine.openshift.io", "v1beta1", "MachineSet");
        let sets: Api<DynamicObject> = Api::namespaced_with(
            fleet.site.client.clone(),
            MACHINES,
            &ApiResource::from_gvk(&gvk),
        );
        let all = sets.list(&Default::default()).await.expect("listed");
        let set = all.items[0].metadata.name.clone().expect("a name");
        let scaled = Patch::Merge(json!({"spec": {"replicas": machines}}));
        let scaled = sets.patch(&set, &PatchParams::default(), &scaled).await;
        scaled.expect("scaled");
        fleet
            .until("all are up", || {
                let hosts = fleet.hosts();
                hosts.len() == machines && hosts.iter().all(|host| host.phase() == HostPhase::Up)
            })
            .await;
        for host in fleet.hosts() {
            let pin = json!({"metadata": {"annotations": {HOST_KEY: host.host_keys()[0]}}});
            let pin = Patch::Merge(pin);
            let params = PatchParams::default();
            let pinned = fleet.machines().patch(host.name(), &params, &pin).await;
            pinned.expect("pinned");
        }
        fleet
    }

    pub(super) async fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let mut poll = tokio::time::interval(Duration::from_millis(500));
        for _ in 0..7_200 {
            poll.tick().await;
            if holds() {
                return;
            }
        }
        panic!("not in an hour: {what}");
    }

    pub(super) fn machines(&self) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("machine.openshift.io", "v1beta1", "Machine");
        let resource = ApiResource::from_gvk(&gvk);
        Api::namespaced_with(self.site.client.clone(), MACHINES, &resource)
    }

    /// In the order of names, as the command has them.
    fn hosts(&self) -> Vec<Arc<Host>> {
        let mut hosts = self.world.hosts.as_ref().expect("hosts").all();
        hosts.sort_by(|a, b| a.name().cmp(b.name()));
        hosts
    }

    pub(super) fn old(&self) -> KeyText {
        KeyText::of("the world", self.world.ssh_key.private_pem.clone()).expect("a key")
    }

    /// What dormer's worker does once it has another key (`src/run/userdata.rs`).
    pub(super) async fn write_user_data(&self, key: &KeyText) {
        let text = user_data(&key.public, "aws").expect("user data");
        let secrets: Api<Secret> = Api::namespaced(self.site.client.clone(), MACHINES);
        let data = Patch::Merge(json!({"stringData": {"userData": text}}));
        let params = PatchParams::default();
        let written = secrets.patch("windows-user-data", &params, &data).await;
        written.expect("written");
    }

    /// Public keys in the Secret.
    pub(super) async fn in_secret(&self) -> Vec<String> {
        let secrets: Api<Secret> = Api::namespaced(self.site.client.clone(), HOME);
        let secret = secrets.get("cloud-private-key").await.expect("the Secret");
        let data = secret.data.expect("data");
        let texts = [SECRET_KEY, PREVIOUS_KEY]
            .into_iter()
            .filter_map(|it| data.get(it));
        let keys = texts.map(|text| String::from_utf8(text.0.clone()).expect("text"));
        keys.map(|text| KeyText::of("it", text).expect("a key").public)
            .collect()
    }

    fn file(&self, host: &Host) -> Vec<u8> {
        let read = host.state().disk.read_text_path(KEY_FILE);
        read.expect("the file").head.to_vec()
    }

    pub(super) fn files(&self) -> Vec<Vec<u8>> {
        self.hosts().iter().map(|host| self.file(host)).collect()
    }

    /// The law of a rotation: each host that is up is opened by a key that dormer has.
    async fn is_open_to_dormer(&self, when: &str) {
        let keys = self.in_secret().await;
        // A connection of the command that was cut may still have a file open.
        let closed = |host: &Arc<Host>| host.state().disk.read_text_path(KEY_FILE).is_ok();
        self.until("files are closed", || self.hosts().iter().all(closed))
            .await;
        for host in self.hosts() {
            let file = self.file(&host);
            let open = keys.iter().any(|key| permits(&file, key));
            let text = String::from_utf8_lossy(&file).into_owned();
            assert!(open, "{when}: {} is lost: {text}", host.name());
        }
    }

    async fn lets_in(&self, host: &Host, key: &Key) -> bool {
        let KeyedCluster { dialer, limits, .. } = &self.site;
        let pin = host.host_keys()[0].clone();
        let address = host.internal_ip();
        let user = "Administrator";
        let opened = Session::open(dialer, &address, user, Some(&pin), key, *limits).await;
        opened.is_ok()
    }

    pub(super) async fn rotated(&self, new: &KeyText) -> KeyReport {
        rotate(&self.site, new, &[], true).await.expect("a report")
    }

    async fn finished(&self, left_out: &[String]) -> KeyReport {
        let done = take_away(&self.site, left_out, false, true).await;
        done.expect("a report")
    }

    /// Hosts reboot, and their user data runs.
    async fn reboot(&self) {
        let boots = |host: &Arc<Host>| host.state().boots;
        let before: Vec<u32> = self.hosts().iter().map(boots).collect();
        for host in self.hosts() {
            host.reboot_in(Duration::from_secs(1));
        }
        self.until("all are up again", || {
            let hosts = self.hosts();
            let mut with = hosts.iter().zip(&before);
            with.all(|(host, before)| boots(host) > *before && host.phase() == HostPhase::Up)
        })
        .await;
    }
}

/// A key as ssh-keygen makes it.
fn made(kind: KeyKind) -> KeyText {
    let folder = test_dir("ssh-key");
    let made = SshKey::make(folder.path(), "new", kind).expect("ssh-keygen makes it");
    KeyText::of("--new", made.private).expect("a key")
}

pub(super) fn new() -> KeyText {
    made(KeyKind::Ed25519)
}

fn names(report: &KeyReport, outcome: KeyOutcome) -> Vec<&str> {
    let rows = report.rows.iter();
    rows.filter(|row| row.outcome == outcome)
        .map(|row| row.machine.as_str())
        .collect()
}

pub(super) fn refusal(done: Result<KeyReport, Failure>) -> String {
    match done {
        Err(failure) => failure.to_string(),
        Ok(report) => panic!("it was done: {}", report.text()),
    }
}

#[tokio::test(start_paused = true)]
async fn fifty_hosts_get_a_new_key_and_two_that_are_away_are_named_and_follow() {
    let fleet = Fleet::of(50, UserData::Ours).await;
    let old = fleet.old();
    let new = new();
    let away: Vec<Arc<Host>> = fleet.hosts().drain(..2).collect();
    let away_names: Vec<&str> = away.iter().map(|host| host.name()).collect();
    away.iter().for_each(|host| host.power_off());

    let planned = rotate(&fleet.site, &new, &[], false).await.expect("a plan");
    assert_eq!(names(&planned, KeyOutcome::Planned).len(), 50);
    assert!(planned.text().contains("Nothing was changed"));

    let report = fleet.rotated(&new).await;
    assert_eq!(
        names(&report, KeyOutcome::Done).len(),
        48,
        "{}",
        report.text()
    );
    assert_eq!(names(&report, KeyOutcome::Failed), away_names);
    for row in report.rows.iter().filter(|row| row.failed()) {
        assert!(
            row.what_to_do.contains("start it or mend its network"),
            "{row:?}"
        );
    }
    assert!(!report.good());
    assert_eq!(
        fleet.in_secret().await,
        [new.public.clone(), old.public.clone()]
    );
    fleet.is_open_to_dormer("rotated").await;
    // dormer's own login: the new key, and the previous one where a host does not have it.
    let both = new.key.clone().with_previous(old.key.clone());
    assert!(fleet.lets_in(&fleet.hosts()[49], &new.key).await);

    fleet.write_user_data(&new).await;
    let stopped = fleet.finished(&[]).await;
    assert!(
        stopped.text().contains("Nothing was changed: 2 of 50"),
        "{}",
        stopped.text()
    );
    assert_eq!(fleet.in_secret().await.len(), 2);

    away.iter().for_each(|host| host.power_on());
    let up = || away.iter().all(|host| host.phase() == HostPhase::Up);
    fleet.until("they are back", up).await;
    assert!(fleet.lets_in(&away[0], &both).await, "by the previous key");
    let behind = fleet.finished(&[]).await;
    assert!(
        behind.text().contains("ssh-key rotate with the same --new"),
        "{}",
        behind.text()
    );

    let again = fleet.rotated(&new).await;
    assert_eq!(
        names(&again, KeyOutcome::Done),
        away_names,
        "{}",
        again.text()
    );
    assert_eq!(names(&again, KeyOutcome::Already).len(), 48);
    let end = fleet.finished(&[]).await;
    assert_eq!(names(&end, KeyOutcome::Done).len(), 50, "{}", end.text());
    assert_eq!(fleet.in_secret().await, std::slice::from_ref(&new.public));

    fleet.reboot().await;
    fleet.is_open_to_dormer("rebooted").await;
    for host in fleet.hosts() {
        assert!(!permits(&fleet.file(&host), &old.public), "{}", host.name());
    }
    assert!(!fleet.lets_in(&away[0], &old.key).await, "it stays out");
    let nothing = fleet.finished(&[]).await;
    assert!(nothing.text().contains("no rotation is under way"));
    // Nothing of this ran a command on a host.
    assert!(
        fleet
            .hosts()
            .iter()
            .all(|host| host.counts().remote_commands == 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_wrong_new_key_changes_nothing_and_says_so() {
    let fleet = Fleet::of(3, UserData::Ours).await;
    let before = fleet.files();
    for (text, why) in [
        ("no key at all", "cannot be read"),
        (fleet.world.ssh_key.public_line.as_str(), "cannot be read"),
    ] {
        let refused = KeyText::of("--new", text.to_owned())
            .err()
            .expect("refused");
        let said = refused.to_string();
        assert!(
            said.contains(why) && said.contains("nothing was changed"),
            "{said}"
        );
        assert!(!said.contains(text), "{said}");
    }
    let same = refusal(rotate(&fleet.site, &fleet.old(), &[], true).await);
    assert!(same.contains("has this very key"), "{same}");

    // A key of a kind that the hosts' sshd does not take.
    for host in fleet.hosts() {
        host.state().refused_keys = Some("ecdsa-sha2-nistp256");
    }
    let curve = made(KeyKind::Ecdsa(256));
    let refused = refusal(rotate(&fleet.site, &curve, &[], true).await);
    let first = fleet.hosts()[0].name().to_owned();
    for part in [
        first.as_str(),
        "the first host",
        "left as it was",
        "nothing else was changed",
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    assert_eq!(fleet.files(), before);
    assert_eq!(fleet.in_secret().await, [fleet.old().public]);
}

#[tokio::test(start_paused = true)]
async fn a_third_key_waits_for_the_end_and_the_previous_one_leads_back() {
    let fleet = Fleet::of(2, UserData::Ours).await;
    let old = fleet.old();
    let new = new();
    fleet.rotated(&new).await;
    let third = made(KeyKind::Ecdsa(256));
    let refused = refusal(rotate(&fleet.site, &third, &[], true).await);
    assert!(refused.contains("a rotation is under way"), "{refused}");
    let back = fleet.rotated(&old).await;
    assert_eq!(names(&back, KeyOutcome::Already).len(), 2);
    assert_eq!(
        fleet.in_secret().await,
        [old.public.clone(), new.public.clone()]
    );
    let end = fleet.finished(&[]).await;
    assert!(end.good(), "{}", end.text());
    assert_eq!(fleet.in_secret().await, [old.public]);
    assert!(!permits(&fleet.file(&fleet.hosts()[0]), &new.public));
}

#[tokio::test(start_paused = true)]
async fn an_old_key_that_user_data_would_bring_back_is_not_taken_away_and_the_host_is_named() {
    let fleet = Fleet::of(2, UserData::Others).await;
    let old = fleet.old();
    let new = new();
    fleet.rotated(&new).await;
    fleet.reboot().await;
    // The whole file was written anew, so the previous key is what opens them.
    fleet.is_open_to_dormer("rebooted").await;
    assert!(permits(&fleet.file(&fleet.hosts()[0]), &old.public));
    fleet.rotated(&new).await;
    let behind = refusal(take_away(&fleet.site, &[], false, true).await);
    assert!(
        behind.contains("does not have the new key alone yet"),
        "{behind}"
    );
    fleet.write_user_data(&new).await;
    let report = fleet.finished(&[]).await;
    let text = report.text();
    assert_eq!(names(&report, KeyOutcome::Failed).len(), 2, "{text}");
    assert!(
        text.contains("writes the old key again at the next boot"),
        "{text}"
    );
    assert!(text.contains("dormer recreate"), "{text}");
    assert_eq!(fleet.in_secret().await.len(), 2);
    // A person knows that it does not.
    let once = take_away(&fleet.site, &[], true, true)
        .await
        .expect("a report");
    assert!(once.good(), "{}", once.text());
    assert_eq!(fleet.in_secret().await, [new.public]);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_a_person_gives_up_holds_up_nothing() {
    let fleet = Fleet::of(2, UserData::Ours).await;
    let old = fleet.old();
    let new = new();
    let lost = fleet.hosts()[1].clone();
    lost.power_off();
    fleet.rotated(&new).await;
    fleet.write_user_data(&new).await;
    let unknown = take_away(&fleet.site, &["win-z".into()], false, true).await;
    assert!(refusal(unknown).contains("no Windows machine win-z"));
    let end = fleet.finished(&[lost.name().to_owned()]).await;
    assert!(end.good(), "{}", end.text());
    assert_eq!(names(&end, KeyOutcome::LeftOut), [lost.name()]);
    assert_eq!(fleet.in_secret().await, [new.public]);
    assert!(permits(&fleet.file(&lost), &old.public));
}

/// Polls `work` `polls` times and drops it, as a power cut ends the command.
async fn cut_after<T>(polls: u32, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut left = polls;
    std::future::poll_fn(move |context: &mut Context<'_>| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        work.as_mut().poll(context).map(Some)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_power_cut_at_each_point_loses_no_host_and_the_same_command_goes_on() {
    let fleet = Fleet::of(3, UserData::Ours).await;
    let old = fleet.old();
    let new = new();
    let mut keys = [&old, &new];
    let mut cuts = 0;
    let mut half_added = 0;
    let mut half_taken = 0;
    // Each turn rotates to the other key, and cuts both commands one poll later than the turn before.
    for polls in 1.. {
        let [from, to] = keys;
        let have = |key: &KeyText| {
            let files = fleet.files();
            files
                .iter()
                .filter(|file| permits(file, &key.public))
                .count()
        };
        let rotating = cut_after(polls, rotate(&fleet.site, to, &[], true)).await;
        fleet
            .is_open_to_dormer(&format!("rotation cut at {polls}"))
            .await;
        half_added += u32::from((1..3).contains(&have(to)));
        let report = fleet.rotated(to).await;
        assert!(report.good(), "{polls}: {}", report.text());
        fleet.write_user_data(to).await;
        let ending = cut_after(polls, take_away(&fleet.site, &[], false, true)).await;
        fleet
            .is_open_to_dormer(&format!("end cut at {polls}"))
            .await;
        half_taken += u32::from((1..3).contains(&have(from)));
        let end = fleet.finished(&[]).await;
        assert!(end.good(), "{polls}: {}", end.text());
        assert_eq!(fleet.in_secret().await, std::slice::from_ref(&to.public));
        keys.reverse();
        cuts += u32::from(rotating.is_none()) + u32::from(ending.is_none());
        if rotating.is_some() && ending.is_some() {
            break;
        }
    }
    assert!(cuts > 50, "{cuts} cuts");
    // Cuts fell between the hosts, too.
    assert!(
        half_added > 0 && half_taken > 0,
        "{half_added}, {half_taken}"
    );
}

/// One person is stopped at each point where the command waits, and another one rotates to another key meanwhile.
#[tokio::test(start_paused = true)]
async fn of_two_who_rotate_at_once_one_is_refused_and_leaves_no_key_on_a_host() {
    let fleet = Fleet::of(3, UserData::Ours).await;
    let mut old = fleet.old();
    let mut crossed = 0;
    for polls in (0..400).step_by(3) {
        let mine = new();
        let theirs = new();
        let mut first = pin!(rotate(&fleet.site, &mine, &[], true));
        let done = cut_after(polls, first.as_mut()).await;
        let ended = done.is_some();
        let second = rotate(&fleet.site, &theirs, &[], true).await;
        let first = match done {
            Some(done) => done,
            None => first.await,
        };
        let (won, lost, refused) = match (first, second) {
            (Ok(_), Err(refused)) => (mine.clone(), theirs, refused),
            (Err(refused), Ok(_)) => (theirs, mine.clone(), refused),
            (Ok(one), Ok(other)) => panic!("{polls}: {}\n{}", one.text(), other.text()),
            (Err(one), Err(other)) => panic!("{polls}: {one}\n{other}"),
        };
        let when = format!("after {polls} polls, {refused}");
        let keys = [won.public.clone(), old.public.clone()];
        assert_eq!(fleet.in_secret().await, keys, "{when}");
        fleet.is_open_to_dormer(&when).await;
        for file in fleet.files() {
            assert!(!permits(&file, &lost.public), "{when}");
        }
        crossed += u32::from(refused.to_string().contains("meanwhile"));
        // The winner continues, and ends the rotation.
        let again = fleet.rotated(&won).await;
        assert!(again.good(), "{when}: {}", again.text());
        fleet.write_user_data(&won).await;
        let end = fleet.finished(&[]).await;
        assert!(end.good(), "{when}: {}", end.text());
        old = won;
        if ended {
            assert!(crossed > 5, "{crossed} of {polls}");
            return;
        }
    }
    panic!("a rotation has no end");
}

#[test]
fn a_report_for_programs_has_fingerprints_and_no_key() {
    let old = new();
    let new = new();
    let report = KeyReport::of_rotation(&old, &new, false);
    let json: Value = report.json();
    let print = json["newKey"].as_str().expect("a fingerprint");
    assert!(print.starts_with("ssh-ed25519 SHA256:"), "{print}");
    assert!(!json.to_string().contains("PRIVATE"));
}

#[tokio::test(start_paused = true)]
async fn a_previous_key_that_is_the_present_one_is_taken_off_no_host() {
    let fleet = Fleet::of(2, UserData::Ours).await;
    let old = fleet.old();
    let new = new();
    fleet.rotated(&new).await;
    // What a program does that owns the present key alone: it puts the old one back.
    let secrets: Api<Secret> = Api::namespaced(fleet.site.client.clone(), HOME);
    let back = json!({"stringData": {SECRET_KEY: fleet.world.ssh_key.private_pem}});
    let written = secrets
        .patch(
            "cloud-private-key",
            &PatchParams::default(),
            &Patch::Merge(back),
        )
        .await;
    written.expect("written");
    let nothing = fleet.finished(&[]).await;
    assert!(
        nothing.text().contains("no rotation is under way"),
        "{}",
        nothing.text()
    );
    for host in fleet.hosts() {
        assert!(permits(&fleet.file(&host), &old.public), "{}", host.name());
    }
    let again = fleet.rotated(&new).await;
    assert_eq!(
        names(&again, KeyOutcome::Already).len(),
        2,
        "{}",
        again.text()
    );
    assert_eq!(fleet.in_secret().await, [new.public, old.public]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_dormer_leaves_alone_keeps_the_previous_key_in_the_secret() {
    let fleet = Fleet::of(3, UserData::Ours).await;
    let new = new();
    let ignored = fleet.hosts()[0].name().to_owned();
    let label = json!({"metadata": {"labels": {IGNORE: "true"}}});
    let params = PatchParams::default();
    let labelled = fleet
        .machines()
        .patch(&ignored, &params, &Patch::Merge(label))
        .await;
    labelled.expect("labelled");
    let report = fleet.rotated(&new).await;
    assert_eq!(
        names(&report, KeyOutcome::LeftAlone),
        [ignored.as_str()],
        "{}",
        report.text()
    );
    fleet.write_user_data(&new).await;
    let stopped = fleet.finished(&[]).await;
    assert_eq!(
        names(&stopped, KeyOutcome::Failed),
        [ignored.as_str()],
        "{}",
        stopped.text()
    );
    assert_eq!(fleet.in_secret().await.len(), 2);
    let given_up = fleet.finished(std::slice::from_ref(&ignored)).await;
    let said = given_up.text();
    assert!(
        said.contains(&format!("may still open {ignored}: keep it")),
        "{said}"
    );
    assert_eq!(fleet.in_secret().await, [new.public]);
}

#[tokio::test(start_paused = true)]
async fn hosts_that_refuse_the_new_key_keep_it_from_becoming_dormers() {
    let fleet = Fleet::of(3, UserData::Ours).await;
    let curve = made(KeyKind::Ecdsa(256));
    let refusing: Vec<String> = fleet.hosts()[1..]
        .iter()
        .map(|host| {
            host.state().refused_keys = Some("ecdsa-sha2-nistp256");
            host.name().to_owned()
        })
        .collect();
    for _ in 0..2 {
        // The second time the first host takes the key already, which proves nothing for the others.
        let done = rotate(&fleet.site, &curve, &[], true).await;
        let said = match done {
            Ok(report) => report.text(),
            Err(failure) => failure.to_string(),
        };
        assert!(said.contains("--leave-out"), "{said}");
        assert_eq!(fleet.in_secret().await, [fleet.old().public], "{said}");
    }
    let given_up = rotate(&fleet.site, &curve, &refusing, true).await;
    let given_up = given_up.expect("a report");
    assert_eq!(names(&given_up, KeyOutcome::LeftOut), refusing);
    assert_eq!(fleet.in_secret().await, [curve.public, fleet.old().public]);
}
