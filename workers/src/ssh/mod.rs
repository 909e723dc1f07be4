//! SSH and SFTP as OpenSSH for Windows speaks them, with one pool of connections a worker.
