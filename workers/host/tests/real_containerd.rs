//! The import of an image by containerd itself, on this machine's system: the protocol and what containerd keeps are the
//! same on Windows, only the pipe is a socket.

use std::{
    io::Cursor,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use dormer_host::containerd::{describe, find, import};
use dormer_profile::sha256_hex;
use dormer_testkit::{Containerd, Process, ProcessSpec, block_until, containerds, long, test_dir};
use serde_json::{Value, json};

const NAME: &str = "registry.example/pause:3.10.2";
const IN_TIME: Duration = Duration::from_secs(120);

/// An image with one layer of so many bytes: its archive, and the digests of its blobs, the index last.
fn image(layer_bytes: usize) -> (Vec<u8>, Vec<String>) {
    let layer: Vec<u8> = (0..layer_bytes)
        .map(|n| u8::try_from(n % 253).unwrap_or(0))
        .collect();
    let described = |kind: &str, bytes: &[u8]| {
        json!({
            "mediaType": format!("application/vnd.oci.image.{kind}"),
            "digest": format!("sha256:{}", sha256_hex(bytes)),
            "size": bytes.len(),
        })
    };
    let bytes = |value: &Value| value.to_string().into_bytes();
    let config = bytes(&json!({
        "os": "windows", "architecture": "amd64", "os.version": "10.0.20348.1",
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", sha256_hex(&layer))]},
    }));
    let manifest = bytes(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described("config.v1+json", &config),
        "layers": [described("layer.v1.tar", &layer)],
    }));
    let index = bytes(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [described("manifest.v1+json", &manifest)],
    }));
    let top =
        bytes(&json!({"schemaVersion": 2, "manifests": [described("index.v1+json", &index)]}));
    let blobs = [layer, config, manifest, index];
    let digests = blobs.iter().map(|blob| sha256_hex(blob)).collect();
    let mut tar = tar::Builder::new(Vec::new());
    let mut add = |name: &str, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, name, bytes).expect("added");
    };
    add("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#);
    add("index.json", &top);
    for blob in &blobs {
        add(&format!("blobs/sha256/{}", sha256_hex(blob)), blob);
    }
    (tar.into_inner().expect("a tar"), digests)
}

/// A containerd with its own folders, whose garbage collector runs at once.
fn start(containerd: &Containerd, folder: &Path) -> (Process, PathBuf) {
    let socket = folder.join("c.sock");
    let shown = folder.display();
    let cri = if containerd.version.starts_with("1.") {
        r#""io.containerd.grpc.v1.cri""#
    } else {
        r#""io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images""#
    };
    let config = format!(
        "version = 2\nroot = '{shown}/root'\nstate = '{shown}/state'\ndisabled_plugins = [{cri}, \"io.containerd.nri.v1.nri\"]\n\
         [grpc]\naddress = '{shown}/c.sock'\n[ttrpc]\naddress = '{shown}/t.sock'\n\
         [plugins.\"io.containerd.gc.v1.scheduler\"]\nstartup_delay = '1ms'\nschedule_delay = '1ms'\nmutation_threshold = 1\ndeletion_threshold = 1\n"
    );
    let file = folder.join("config.toml");
    std::fs::write(&file, config).expect("written");
    let spec = ProcessSpec {
        program: containerd.program.clone(),
        args: vec!["--config".into(), file.display().to_string()],
        env: vec![],
        log: folder.join("log"),
        folder: None,
    };
    let process = Process::start(&spec).expect("started");
    let answers = || UnixStream::connect(&socket).is_ok_and(|stream| find(stream, NAME).is_ok());
    let log = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    assert!(block_until(IN_TIME, answers), "{}", log());
    (process, socket)
}

#[test]
fn real_containerd_takes_an_image_and_keeps_it() {
    let part = long!("configurations");
    let containerds = match containerds() {
        Ok(found) => found,
        Err(skipped) => dormer_testkit::skip!(skipped),
    };
    for containerd in &containerds {
        let version = containerd.version;
        let folder = test_dir("containerd");
        let (mut process, socket) = start(containerd, folder.path());
        let connect = || UnixStream::connect(&socket).expect("connected");
        let there = |digest: &String| {
            let blobs = "root/io.containerd.content.v1.content/blobs/sha256";
            folder.path().join(blobs).join(digest).is_file()
        };
        // Past every window, and past one message.
        let (old, old_blobs) = image(3_000_000);
        let (new, new_blobs) = image(5_000_001);
        for (archive, blobs) in [(&old, &old_blobs), (&new, &new_blobs), (&new, &new_blobs)] {
            import(connect(), Cursor::new(archive), NAME)
                .unwrap_or_else(|error| panic!("{version}: {error}"));
            let digest = find(connect(), NAME).expect("asked");
            assert_eq!(digest, Some(format!("sha256:{}", blobs[3])), "{version}");
            assert_eq!(
                digest,
                describe(Cursor::new(archive), NAME).ok(),
                "{version}"
            );
            assert!(blobs.iter().all(there), "{version}");
        }
        // What nothing names goes. So the collector ran, and what the new image names is not its prey.
        let gone = || !old_blobs.iter().any(there);
        assert!(block_until(IN_TIME, gone), "{version}: the old image stays");
        assert!(new_blobs.iter().all(there), "{version}");
        // A blob that is not what its digest says is refused by containerd, and nothing gets the name.
        let mut damaged = old.clone();
        let at = damaged
            .windows(8)
            .position(|bytes| bytes == [0, 1, 2, 3, 4, 5, 6, 7]);
        damaged[at.expect("the layer") + 3] ^= 1;
        let error = import(connect(), Cursor::new(&damaged), NAME).expect_err("damaged");
        assert!(error.text.contains("digest"), "{version}: {error}");
        let digest = find(connect(), NAME).expect("asked");
        assert_eq!(
            digest,
            Some(format!("sha256:{}", new_blobs[3])),
            "{version}"
        );
        process.kill();
    }
    let versions: Vec<&str> = containerds.iter().map(|one| one.version).collect();
    part.passed(&[("containerd", versions.join(", "))]);
}
