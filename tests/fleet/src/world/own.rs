//! BYOH hosts: computers that no controller makes. A person has set them up, with dormer's key on them, and they stay when
//! their WindowsHosts go.

use std::sync::Arc;

use super::{CloudError, HostCloud, HostOrder, OutsideWorld, Platform, World};
use crate::manifest::demo::{self, SshKey};

impl World {
    /// Sets up a host, and answers its address.
    ///
    /// # Errors
    /// There is no room for it.
    pub async fn own_host(&self, name: &str) -> Result<String, CloudError> {
        set_up(&self.cloud, name, &self.ssh_key).await
    }
}

impl OutsideWorld {
    /// As [`World::own_host`].
    ///
    /// # Errors
    /// There is no room for it.
    pub async fn own_host(&self, name: &str) -> Result<String, CloudError> {
        let cloud: Arc<dyn HostCloud> = Arc::new(self.hosts.clone());
        set_up(&cloud, name, &self.ssh_key).await
    }
}

async fn set_up(
    cloud: &Arc<dyn HostCloud>,
    name: &str,
    key: &SshKey,
) -> Result<String, CloudError> {
    let order = HostOrder {
        uid: format!("own-{name}"),
        name: name.to_owned(),
        namespace: String::new(),
        platform: Platform::Own,
        windows: true,
        user_data: demo::user_data(&key.public_line).into_bytes(),
        image: String::new(),
    };
    let instance = cloud.provision(order).await?;
    let mut addresses = instance.addresses.into_iter();
    let internal = addresses.find(|(kind, _)| kind == "InternalIP");
    Ok(internal.map(|(_, address)| address).unwrap_or_default())
}
