//! What an error does to a good resource.

/// The effect of an error on a good resource: the settings of a server's bootstrap entry, and of the client.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Policy {
    /// A deleted resource stays in use, with a warning (A53, A88). From the server's feature `ignore_resource_deletion`, unless
    /// the application has set `ClientBuilder::on_deletion`.
    pub(crate) keep_deleted: bool,
    /// Data errors drop the resource (`fail_on_data_errors`, A88-4). It wins over `keep_deleted`: a deletion is a data error,
    /// too.
    pub(crate) fail_on_data_errors: bool,
}
