//! The RBACs of filters, which equal routes share.

use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::{
    rbac::{Auditor, Rbac},
    resource::http_filter::{RbacRules, rbac::AuditLogger},
};

/// The RBACs that were compiled for earlier routes, to be shared by equal ones: by the name of the filter that of the listener, and
/// the last one of an override.
pub(super) struct SharedRbacs<'a> {
    compiled: BTreeMap<&'a str, [Option<Compiled>; 2]>,
    /// The audit logger to the standard output.
    stdout: &'a Arc<dyn AuditLogger>,
}

/// Rules with the RBAC that was compiled of them.
type Compiled = (RbacRules, Arc<Rbac>);

impl<'a> SharedRbacs<'a> {
    pub(super) fn new(stdout: &'a Arc<dyn AuditLogger>) -> Self {
        Self { compiled: BTreeMap::new(), stdout }
    }

    /// Returns the RBAC of a filter with some rules, compiled unless that of an earlier route is equal.
    pub(super) fn of(&mut self, name: &'a str, rules: &RbacRules, is_override: bool) -> Arc<Rbac> {
        let known = &mut self.compiled.entry(name).or_default()[usize::from(is_override)];
        if let Some((_, equal)) = known.as_ref().filter(|(known, _)| known == rules) {
            return equal.clone();
        }
        let mut rbac = Rbac::from_rules(rules);
        // SV10.3: the name of the filter is that of its policies.
        if let Some(auditor) = Auditor::from_config(name, &rules.audit_logging, self.stdout) {
            rbac = rbac.with_auditor(auditor);
        }
        let rbac = Arc::new(rbac);
        *known = Some((rules.clone(), rbac.clone()));
        rbac
    }
}

impl fmt::Debug for SharedRbacs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.compiled.keys()).finish()
    }
}
