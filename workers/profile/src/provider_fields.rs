//! Fields that the Machine API reads in a `providerSpec`, by platform.
//!
//! Read in openshift/api at commit 2a3d73913 (August 2026): `machine/v1beta1/types_awsprovider.go`,
//! `types_azureprovider.go`, `types_gcpprovider.go`, `types_vsphereprovider.go`, and
//! `machine/v1/types_nutanixprovider.go`. The section "Machines of OpenShift" in docs/field-notes.md says what the Machine
//! API does with any other field.

/// A field, and the fields below it. None below it: its value is not looked into.
pub struct Field {
    pub name: &'static str,
    pub below: &'static [Field],
}

macro_rules! fields {
    (@) => { &[] };
    (@ $below:ident) => { $below };
    ($($type:ident: $($name:ident $(/ $below:ident)?)*;)*) => {
        $(const $type: &[Field] = &[$(Field {
            name: stringify!($name),
            below: fields!(@ $($below)?),
        }),*];)*
    };
}

fields! {
    // LocalObjectReference has the name alone; the guides write a namespace there, too.
    SECRET: name namespace;

    AWS: apiVersion kind metadata ami/AWS_REFERENCE instanceType cpuOptions/AWS_CPU tags/NAME_VALUE
        iamInstanceProfile/AWS_REFERENCE userDataSecret/SECRET credentialsSecret/SECRET keyName deviceIndex publicIp
        networkInterfaceType securityGroups/AWS_REFERENCE subnet/AWS_REFERENCE placement/AWS_PLACEMENT
        loadBalancers/AWS_BALANCER blockDevices/AWS_DEVICE spotMarketOptions/MAX_PRICE
        metadataServiceOptions/AWS_METADATA placementGroupName placementGroupPartition capacityReservationId marketType;
    AWS_REFERENCE: id arn filters/AWS_FILTER;
    AWS_FILTER: name values;
    AWS_CPU: confidentialCompute;
    AWS_DEVICE: deviceName ebs/AWS_EBS noDevice virtualName;
    AWS_EBS: deleteOnTermination encrypted kmsKey/AWS_REFERENCE iops throughputMib volumeSize volumeType;
    AWS_METADATA: authentication;
    AWS_PLACEMENT: region availabilityZone tenancy host/AWS_HOST;
    AWS_HOST: affinity dedicatedHost/AWS_DEDICATED;
    AWS_DEDICATED: allocationStrategy id dynamicHostAllocation/AWS_DYNAMIC;
    AWS_DYNAMIC: tags/NAME_VALUE;
    AWS_BALANCER: name type;
    NAME_VALUE: name value;
    MAX_PRICE: maxPrice;

    AZURE: apiVersion kind metadata userDataSecret/SECRET credentialsSecret/SECRET location vmSize image/AZURE_IMAGE
        osDisk/AZURE_OS_DISK dataDisks/AZURE_DATA_DISK sshPublicKey publicIP tags securityGroup
        applicationSecurityGroups subnet publicLoadBalancer internalLoadBalancer natRule managedIdentity vnet zone
        networkResourceGroup resourceGroup spotVMOptions/MAX_PRICE securityProfile/AZURE_SECURITY ultraSSDCapability
        acceleratedNetworking availabilitySet diagnostics/AZURE_DIAGNOSTICS capacityReservationGroupID;
    AZURE_IMAGE: publisher offer sku version resourceID type;
    AZURE_OS_DISK: osType managedDisk/AZURE_OS_MANAGED diskSizeGB diskSettings/AZURE_DISK_SETTINGS cachingType;
    AZURE_DISK_SETTINGS: ephemeralStorageLocation;
    AZURE_OS_MANAGED: storageAccountType diskEncryptionSet/ID securityProfile/AZURE_DISK_SECURITY;
    AZURE_DISK_SECURITY: diskEncryptionSet/ID securityEncryptionType;
    AZURE_DATA_DISK: nameSuffix diskSizeGB managedDisk/AZURE_DATA_MANAGED lun cachingType deletionPolicy;
    AZURE_DATA_MANAGED: storageAccountType diskEncryptionSet/ID;
    AZURE_SECURITY: encryptionAtHost settings/AZURE_SECURITY_SETTINGS;
    AZURE_SECURITY_SETTINGS: securityType confidentialVM/AZURE_UEFI trustedLaunch/AZURE_UEFI;
    AZURE_UEFI: uefiSettings/AZURE_UEFI_SETTINGS;
    AZURE_UEFI_SETTINGS: secureBoot virtualizedTrustedPlatformModule;
    AZURE_DIAGNOSTICS: boot/AZURE_BOOT;
    AZURE_BOOT: storageAccountType customerManaged/AZURE_ACCOUNT;
    AZURE_ACCOUNT: storageAccountURI;
    ID: id;

    GCP: apiVersion kind metadata userDataSecret/SECRET credentialsSecret/SECRET canIPForward deletionProtection
        disks/GCP_DISK labels gcpMetadata/KEY_VALUE networkInterfaces/GCP_INTERFACE serviceAccounts/GCP_ACCOUNT tags
        targetPools machineType region zone projectID gpus/GCP_GPU preemptible provisioningModel onHostMaintenance
        restartPolicy shieldedInstanceConfig/GCP_SHIELDED confidentialCompute resourceManagerTags/GCP_TAG;
    GCP_DISK: autoDelete boot sizeGb type image labels encryptionKey/GCP_KEY_OF_DISK;
    GCP_KEY_OF_DISK: kmsKey/GCP_KEY kmsKeyServiceAccount;
    GCP_KEY: name keyRing projectID location;
    GCP_INTERFACE: publicIP network projectID subnetwork;
    GCP_ACCOUNT: email scopes;
    GCP_GPU: count type;
    GCP_SHIELDED: secureBoot virtualizedTrustedPlatformModule integrityMonitoring;
    GCP_TAG: parentID key value;
    KEY_VALUE: key value;

    VSPHERE: apiVersion kind metadata userDataSecret/SECRET credentialsSecret/SECRET template
        workspace/VSPHERE_WORKSPACE network/VSPHERE_NETWORK numCPUs numCoresPerSocket memoryMiB diskGiB tagIDs snapshot
        cloneMode dataDisks/VSPHERE_DISK;
    VSPHERE_WORKSPACE: server datacenter folder datastore resourcePool vmGroup;
    VSPHERE_NETWORK: devices/VSPHERE_DEVICE;
    VSPHERE_DEVICE: networkName gateway ipAddrs nameservers addressesFromPools/VSPHERE_POOL;
    VSPHERE_POOL: group resource name;
    VSPHERE_DISK: name sizeGiB provisioningMode;

    NUTANIX: apiVersion kind metadata cluster/NUTANIX_RESOURCE image/NUTANIX_RESOURCE subnets/NUTANIX_RESOURCE
        vcpusPerSocket vcpuSockets memorySize systemDiskSize bootType project/NUTANIX_RESOURCE categories/KEY_VALUE
        gpus/NUTANIX_GPU dataDisks/NUTANIX_DISK userDataSecret/SECRET credentialsSecret/SECRET failureDomain/NAME;
    NUTANIX_RESOURCE: type uuid name;
    NUTANIX_GPU: type deviceID name;
    NUTANIX_DISK: diskSize deviceProperties/NUTANIX_PROPERTIES storageConfig/NUTANIX_STORAGE
        dataSource/NUTANIX_RESOURCE;
    NUTANIX_PROPERTIES: deviceType adapterType deviceIndex;
    NUTANIX_STORAGE: diskMode storageContainer/NUTANIX_CONTAINER;
    NUTANIX_CONTAINER: type uuid;
    NAME: name;
}

/// Fields of a platform's providerSpec. Empty: they are not known here.
#[must_use]
pub fn of(platform: &str) -> &'static [Field] {
    match platform {
        "aws" => AWS,
        "azure" => AZURE,
        "gcp" => GCP,
        "vsphere" => VSPHERE,
        "nutanix" => NUTANIX,
        _ => &[],
    }
}

impl Field {
    /// The field of this name. The Machine API reads these fields in any case.
    #[must_use]
    pub fn find(known: &'static [Self], name: &str) -> Option<&'static Self> {
        known.iter().find(|it| it.name.eq_ignore_ascii_case(name))
    }
}
