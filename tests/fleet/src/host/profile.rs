//! What Windows a host runs, and how the image was made.

use super::shell::Shell;

/// A release of Windows Server with its in-box OpenSSH (docs/field-notes.md, Boots, reboots and limits of sshd).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServerRelease {
    /// Windows Server 2019.
    Server2019,
    /// Windows Server 2022.
    #[default]
    Server2022,
    /// Windows Server 2025.
    Server2025,
}

impl ServerRelease {
    /// Reads the release out of an image name such as `2022-datacenter-smalldisk`; 2022 when it names none.
    pub fn of_image(image: &str) -> Self {
        match image {
            image if image.contains("2019") => Self::Server2019,
            image if image.contains("2025") => Self::Server2025,
            _ => Self::Server2022,
        }
    }

    /// `major.minor.build`.
    pub fn build(self) -> &'static str {
        match self {
            Self::Server2019 => "10.0.17763",
            Self::Server2022 => "10.0.20348",
            Self::Server2025 => "10.0.26100",
        }
    }

    /// Product name, as Windows writes it.
    pub fn product(self) -> &'static str {
        match self {
            Self::Server2019 => "Windows Server 2019 Datacenter",
            Self::Server2022 => "Windows Server 2022 Datacenter",
            Self::Server2025 => "Windows Server 2025 Datacenter",
        }
    }

    /// What sshd says first.
    pub fn banner(self) -> &'static str {
        match self {
            Self::Server2019 => "SSH-2.0-OpenSSH_for_Windows_7.7",
            Self::Server2022 => "SSH-2.0-OpenSSH_for_Windows_8.1",
            Self::Server2025 => "SSH-2.0-OpenSSH_for_Windows_9.5",
        }
    }

    /// Whether its SFTP server knows `limits@openssh.com` (since 8.5).
    pub fn sftp_limits(self) -> bool {
        matches!(self, Self::Server2025)
    }
}

/// How the image of a host was made; the world's options give the defaults, faults change them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The Windows on it.
    pub release: ServerRelease,
    /// Default shell of sshd.
    pub shell: Shell,
    /// Account that user data prepares.
    pub user: String,
    /// Whether the feature `Containers` is enabled already.
    pub containers: bool,
    /// Whether Windows Defender runs.
    pub defender: bool,
    /// Whether Docker is installed.
    pub docker: bool,
    /// Output code page of the console.
    pub code_page: u32,
    /// Whether the shell's profile prints text.
    pub profile_noise: bool,
    /// Whether sshd is in the image. Server 2025 has it in any case; elsewhere user data installs it, from the internet.
    pub openssh: bool,
    /// Whether a firewall blocks all connections from the first boot on, except those to the worker, the API server and
    /// mirrors.
    pub egress_closed: bool,
}

impl Default for Image {
    fn default() -> Self {
        Self {
            release: ServerRelease::default(),
            shell: Shell::default(),
            user: "Administrator".into(),
            containers: true,
            defender: true,
            docker: false,
            code_page: 437,
            profile_noise: false,
            openssh: true,
            egress_closed: false,
        }
    }
}
