//! Images of Windows: which build of Windows each is made for, by its name and tag.

use crate::finding::Finding;
use dormer_profile::yaml_tree::Position;
use dormer_support::windows;

/// Whether an image is known as one for Windows.
pub(super) fn is_windows_image(image: &str) -> bool {
    let (name, tag) = image.rsplit_once(':').unwrap_or((image, ""));
    let small = format!("{name}:{tag}").to_ascii_lowercase();
    let windows_tag = [
        "nanoserver",
        "windowsservercore",
        "servercore",
        "ltsc2016",
        "ltsc2019",
        "ltsc2022",
        "ltsc2025",
    ];
    small.starts_with("mcr.microsoft.com/windows")
        || small.starts_with("mcr.microsoft.com/dotnet/framework")
        || small.starts_with("mcr.microsoft.com/iis")
        || windows_tag
            .iter()
            .any(|it| tag.to_ascii_lowercase().contains(it))
}

fn image_build(tag: &str) -> Option<&'static str> {
    let tag = tag.to_ascii_lowercase();
    let has = |word: &str| {
        tag.split(['-', '_', '.'])
            .any(|part| part == word || part.ends_with(word))
    };
    Some(match () {
        () if tag.contains("ltsc2019") || has("1809") => windows::SERVER_2019,
        () if tag.contains("ltsc2022") => windows::SERVER_2022,
        () if tag.contains("ltsc2025") => windows::SERVER_2025,
        () if tag.contains("ltsc2016") => "10.0.14393",
        () if has("1709") => "10.0.16299",
        () if has("1803") => "10.0.17134",
        () if has("1903") => "10.0.18362",
        () if has("1909") => "10.0.18363",
        () if has("2004") => "10.0.19041",
        () if has("20h2") => "10.0.19042",
        () => return None,
    })
}

pub(super) fn image_release(
    image: &str,
    place: Position,
    wanted: Option<&str>,
    found: &mut Vec<Finding>,
) {
    if !is_windows_image(image) {
        return;
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    let tag = last
        .split_once(':')
        .map(|(_, tag)| tag.split('@').next().unwrap_or(tag));
    let base = [
        "mcr.microsoft.com/windows/servercore",
        "mcr.microsoft.com/windows/nanoserver",
    ];
    let plain = image.split([':', '@']).next().unwrap_or(image);
    match tag {
        None | Some("latest") if base.contains(&plain) && !image.contains('@') => {
            let message = format!("`{image}` has no tag of a Windows, and there is no `latest`");
            found.push(Finding::new("image-release", place, message));
        }
        None => {}
        Some(tag) => {
            let Some(of_image) = image_build(tag) else {
                return;
            };
            if let Some(release) = windows::release(of_image, "").filter(|it| it.refused.is_some())
            {
                let message = format!(
                    "`{image}` is of {}, which no supported host runs",
                    release.name
                );
                found.push(Finding::new("image-release", place, message));
            }
            if let Some(wanted) =
                wanted.filter(|wanted| wanted.starts_with("10.0.") && *wanted != of_image)
            {
                let message =
                    format!("`{image}` is built for {of_image}, and the pod selects {wanted}");
                found.push(Finding::new("image-build", place, message));
            }
        }
    }
}

/// Containers of one pod that are built for two Windows.
pub(super) fn images_of_two_builds(images: &[(&str, Position)], found: &mut Vec<Finding>) {
    let tag = |image: &str| {
        image
            .rsplit('/')
            .next()?
            .split_once(':')
            .map(|(_, tag)| tag.to_owned())
    };
    let built = images
        .iter()
        .filter(|(image, _)| is_windows_image(image))
        .filter_map(|(image, place)| Some((*image, image_build(&tag(image)?)?, *place)));
    let built: Vec<(&str, &str, Position)> = built.collect();
    let Some((one, first, _)) = built.first() else {
        return;
    };
    if let Some((image, build, place)) = built.iter().find(|(_, build, _)| build != first) {
        let message =
            format!("`{image}` is built for {build}, and `{one}` in the same pod for {first}");
        found.push(Finding::new("two-builds", *place, message));
    }
}

#[cfg(test)]
mod tests {
    use super::is_windows_image;

    #[test]
    fn images_of_windows_are_known() {
        for image in [
            "mcr.microsoft.com/windows/servercore:ltsc2019",
            "mcr.microsoft.com/dotnet/framework/aspnet:4.8",
            "registry.corp:5000/app:1.2-nanoserver-ltsc2022",
            "golang:1.22-windowsservercore",
        ] {
            assert!(is_windows_image(image), "{image}");
        }
        for image in [
            "registry.corp:5000/app:1.2",
            "mcr.microsoft.com/dotnet/aspnet:8.0",
            "nginx",
            "windows-shop:2019",
        ] {
            assert!(!is_windows_image(image), "{image}");
        }
    }
}
