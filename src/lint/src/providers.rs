//! Rules for what each platform reads of a MachineSet: image, disk, size, zone.

use crate::{
    common::{VALUE, filled, is_there, nearest},
    finding::Finding,
    paste, provider_fields,
};
use dormer_profile::yaml_tree::Node;
use dormer_support::platform::{self, Windows};

/// Smallest disk: Windows, its page file, payloads of two versions and the layers of images, in GiB.
const DISK_MIN: i64 = 120;
/// The same where the guide to that platform names another one.
const AZURE_DISK_MIN: i64 = 128;
/// Name of the disk of Windows in Amazon's images.
const AWS_ROOT: &str = "/dev/sda1";

/// Releases of Windows in the names of images, which nothing runs on any more.
const OLD: [&str; 9] = [
    "2016", "1709", "1803", "1809", "1903", "1909", "2004", "20h2", "23h2",
];

pub(crate) fn check(root: &Node, found: &mut Vec<Finding>) {
    let Some(value) = root.at(&VALUE) else {
        let place = nearest(root, &VALUE);
        found.push(Finding::new(
            "provider",
            place,
            "no `providerSpec.value` says what to create",
        ));
        return;
    };
    let Some((kind, place)) = filled(value, &["kind"]) else {
        if !is_there(value.get("kind")) {
            found.push(Finding::new(
                "provider",
                value.position,
                "the `providerSpec` has no `kind`",
            ));
        }
        return;
    };
    let Some(known) = platform::of_provider(kind) else {
        found.push(Finding::new(
            "provider",
            place,
            format!("no platform has a `{kind}`"),
        ));
        return;
    };
    if known.windows == Windows::No {
        let message = format!(
            "the platform {} has no supported Windows machines",
            known.name
        );
        found.push(
            Finding::new("provider", place, message)
                .mend("take another platform: docs/support.md lists them"),
        );
        return;
    }
    if let Some((version, place)) = filled(value, &["apiVersion"])
        && !known.provider_versions.contains(&version)
    {
        let first = known.provider_versions.first().copied().unwrap_or_default();
        let finding = Finding::new(
            "provider",
            place,
            format!("`{kind}` has no version `{version}`"),
        );
        found.push(
            finding
                .mend(format!("write `apiVersion: {first}`"))
                .replace(place, first),
        );
    }
    provider_fields::check(value, known.name, kind, found);
    match known.name {
        "aws" => aws(value, found),
        "azure" => azure(value, found),
        "gcp" => gcp(value, found),
        "vsphere" => vsphere(value, found),
        "nutanix" => nutanix(value, found),
        _ => {}
    }
}

fn aws(value: &Node, found: &mut Vec<Finding>) {
    let image = value.at(&["ami", "id"]);
    let by_filter = is_there(value.at(&["ami", "filters"])) || is_there(value.at(&["ami", "arn"]));
    match image.and_then(Node::text) {
        Some(id) if id.starts_with("ami-") || paste::has_placeholder(id) => {}
        Some(id) => {
            let place = image.map_or(value.position, |it| it.position);
            found.push(Finding::new("image", place, format!("`{id}` is no AMI")));
        }
        None if by_filter => {}
        None => found.push(Finding::new(
            "image",
            nearest(value, &["ami", "id"]),
            "no AMI is named",
        )),
    }
    let devices = value.get("blockDevices").map(Node::elements);
    let devices = devices.unwrap_or_default().iter();
    // A device without a name is the disk of Windows; others are disks beside it (machine-api-provider-aws,
    // `getBlockDeviceMappings`: "non root device must have name").
    let is_root =
        |device: &&Node| filled(device, &["deviceName"]).is_none_or(|(name, _)| name == AWS_ROOT);
    let mut any = false;
    for size in devices
        .filter(is_root)
        .filter_map(|it| it.at(&["ebs", "volumeSize"]))
    {
        any = true;
        disk(Some(size), DISK_MIN, found);
    }
    if !any {
        let place = nearest(value, &["blockDevices"]);
        let message = "no `blockDevices` give the disk a size, so the image's own counts";
        found.push(Finding::new("disk-size", place, message));
    }
    if let Some((kind, place)) = filled(value, &["instanceType"]) {
        // The letters after the generation say the processor: `g` is Graviton.
        let family = kind.split('.').next().unwrap_or_default();
        let after = family.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        if after
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .contains('g')
            || family == "a1"
        {
            let message = format!("`{kind}` has an ARM processor");
            found.push(Finding::new("architecture", place, message));
        }
    }
    let zone = filled(value, &["placement", "availabilityZone"]);
    if let (Some((zone, place)), Some((region, _))) =
        (zone, filled(value, &["placement", "region"]))
        && !zone.starts_with(region)
    {
        found.push(Finding::new(
            "zone",
            place,
            format!("the zone `{zone}` is not in the region `{region}`"),
        ));
    }
}

fn azure(value: &Node, found: &mut Vec<Finding>) {
    let image = value.get("image");
    let own = is_there(value.at(&["image", "resourceID"]));
    for key in ["publisher", "offer", "sku", "version"] {
        if !own && !is_there(image.and_then(|it| it.get(key))) {
            let place = nearest(value, &["image"]);
            found.push(Finding::new(
                "image",
                place,
                format!("the image has no `{key}`"),
            ));
        }
    }
    if let Some((sku, place)) = filled(value, &["image", "sku"]) {
        azure_sku(sku, place, found);
    }
    if let Some((version, place)) = filled(value, &["image", "version"])
        && version.eq_ignore_ascii_case("latest")
    {
        found.push(Finding::new(
            "image-latest",
            place,
            "the version of the image is `latest`",
        ));
    }
    let os = value.at(&["osDisk", "osType"]);
    match os.and_then(Node::text) {
        Some("Windows") => {}
        Some(is) if paste::has_placeholder(is) => {}
        Some(is) => {
            let place = os.map_or(value.position, |it| it.position);
            let finding = Finding::new("os-type", place, format!("`osType` is `{is}`"));
            found.push(finding.replace(place, "Windows"));
        }
        None => {
            let place = nearest(value, &["osDisk", "osType"]);
            found.push(Finding::new("os-type", place, "the disk has no `osType`"));
        }
    }
    match value.at(&["osDisk", "diskSizeGB"]) {
        Some(size) => disk(Some(size), AZURE_DISK_MIN, found),
        None => {
            let place = nearest(value, &["osDisk", "diskSizeGB"]);
            found.push(Finding::new(
                "disk-size",
                place,
                "the disk has no `diskSizeGB`",
            ));
        }
    }
    if let Some((size, place)) = filled(value, &["vmSize"]) {
        // `p` among the letters after the number of CPUs is ARM: Standard_D2ps_v5.
        let name = size.split('_').nth(1).unwrap_or_default();
        let letters = name.trim_start_matches(|c: char| c.is_ascii_uppercase());
        if letters
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .contains('p')
        {
            found.push(Finding::new(
                "architecture",
                place,
                format!("`{size}` has an ARM processor"),
            ));
        }
    }
}

fn azure_sku(sku: &str, place: dormer_profile::yaml_tree::Position, found: &mut Vec<Finding>) {
    let small = sku.to_ascii_lowercase();
    let mut parts = small.split(['-', '_']);
    let is_old = parts.any(|part| OLD.contains(&part));
    let is_new = ["2019", "2022", "2025"]
        .iter()
        .any(|year| small.contains(year));
    if is_old || small.starts_with("win10") || small.starts_with("win11") {
        found.push(Finding::new(
            "sku",
            place,
            format!("`{sku}` is a Windows that is not supported"),
        ));
    } else if small.contains("smalldisk") {
        let finding = Finding::new("sku", place, format!("`{sku}` has a partition of 30 GB"));
        found.push(finding.mend(
            "take the SKU without `smalldisk`: Windows does not grow the partition by itself",
        ));
    } else if !is_new {
        found.push(Finding::new(
            "sku",
            place,
            format!("`{sku}` names no supported Windows Server"),
        ));
    }
}

fn gcp(value: &Node, found: &mut Vec<Finding>) {
    let disks = value.get("disks").map(Node::elements).unwrap_or_default();
    let boot = disks
        .iter()
        .find(|it| it.get("boot").and_then(Node::text) == Some("true"));
    let Some(boot) = boot.or(disks.first()) else {
        found.push(Finding::new(
            "image",
            nearest(value, &["disks"]),
            "no disk has an image",
        ));
        return;
    };
    if let Some((image, place)) = filled(boot, &["image"]) {
        old_image(image, place, found);
    } else if !is_there(boot.get("image")) {
        found.push(Finding::new(
            "image",
            boot.position,
            "the boot disk has no `image`",
        ));
    }
    disk(boot.get("sizeGb"), DISK_MIN, found);
    if let Some((kind, place)) = filled(value, &["machineType"])
        && ["t2a-", "c4a-"].iter().any(|arm| kind.starts_with(arm))
    {
        found.push(Finding::new(
            "architecture",
            place,
            format!("`{kind}` has an ARM processor"),
        ));
    }
}

fn vsphere(value: &Node, found: &mut Vec<Finding>) {
    match filled(value, &["template"]) {
        Some((template, place)) => old_image(template, place, found),
        None if is_there(value.get("template")) => {}
        None => found.push(Finding::new(
            "image",
            nearest(value, &["template"]),
            "no `template` is named",
        )),
    }
    disk(value.get("diskGiB"), DISK_MIN, found);
}

fn nutanix(value: &Node, found: &mut Vec<Finding>) {
    if !is_there(value.get("image")) {
        found.push(Finding::new(
            "image",
            nearest(value, &["image"]),
            "no `image` is named",
        ));
    }
    if let Some((text, place)) = filled(value, &["systemDiskSize"]) {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        if let Ok(size) = digits.parse::<i64>()
            && text.ends_with("Gi")
            && size < DISK_MIN
        {
            let message = format!("the disk has {size} GiB; a Windows node needs {DISK_MIN}");
            found.push(
                Finding::new("disk-size", place, message).replace(place, format!("{DISK_MIN}Gi")),
            );
        }
    }
}

/// Image of a release that nothing runs on, by the words in its name.
fn old_image(image: &str, place: dormer_profile::yaml_tree::Position, found: &mut Vec<Finding>) {
    let small = image.to_ascii_lowercase();
    let windows = small.contains("win");
    if windows
        && small
            .split(['-', '_', '/', '.', ' '])
            .any(|part| OLD.contains(&part))
    {
        found.push(Finding::new(
            "image",
            place,
            format!("`{image}` is a Windows that is not supported"),
        ));
    }
}

fn disk(size: Option<&Node>, least: i64, found: &mut Vec<Finding>) {
    let Some(size) = size else { return };
    if let Some(is) = size.number().filter(|is| *is < least) {
        let message = format!("the disk has {is} GB; a Windows node needs {least}");
        let finding = Finding::new("disk-size", size.position, message);
        found.push(
            finding
                .mend(format!("write {least} or more"))
                .replace(size.position, least.to_string()),
        );
    }
}
