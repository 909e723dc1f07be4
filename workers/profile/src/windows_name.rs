//! Names of files and folders on Windows.

/// Why Windows would not keep this name of a file or a folder as it is.
pub fn refused(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("has an empty name in it");
    }
    if name.chars().any(|c| c < ' ' || "<>:\"/|?*~".contains(c)) {
        return Some("has a character that no name may hold");
    }
    if name.ends_with('.') || name.ends_with(' ') {
        return Some("has a name that ends in a dot or a space, which Windows leaves away");
    }
    let stem = name.split('.').next().unwrap_or(name).trim_end();
    reserved(stem).then_some("has a name that is a device")
}

fn reserved(stem: &str) -> bool {
    let stem = stem.to_ascii_uppercase();
    if matches!(
        stem.as_str(),
        "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$"
    ) {
        return true;
    }
    let Some(digit) = stem.strip_prefix("COM").or(stem.strip_prefix("LPT")) else {
        return false;
    };
    let mut digits = digit.chars();
    matches!(digits.next(), Some('0'..='9' | '¹' | '²' | '³')) && digits.next().is_none()
}
