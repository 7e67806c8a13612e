//! The resolution of a target, drawn as a tree of text.
//!
//! ```text
//! ● xds:///shop  listener shop → routes shop-routes → virtual host shop (shop.example)
//! ├─ /cart/*  → 90 % cart, 10 % cart-canary
//! ├─ *        → web
//! ├─ ● cart         EDS
//! │  ├─ eu/a 50 %  ● 10.0.1.1:8080
//! │  └─ eu/b 50 %  ◌ 10.0.1.2:8080 draining
//! ├─ ● cart-canary  EDS  eu/a  ● 10.0.2.1:8080
//! └─ ✗ web  NOT_FOUND: …
//! ```

mod clusters;
mod routes;
mod warning;

use std::{collections::BTreeSet, fmt::Display, sync::Arc};

use xdskit::{
    WatchError,
    error::Escaped,
    resolve::Snapshot,
    resource::{Remarks, listener::RouteSource, scoped_route::ScopedRouteSource},
};

pub(crate) use self::warning::Warning;
use self::{clusters::draw_clusters, routes::Routes};
use super::paint::Paint;

/// A renderer of trees, each as its lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Artist {
    /// The colours of the trees.
    pub(crate) paint: Paint,
}

/// A branch of a tree.
pub(super) struct Branch {
    /// The text, of one or more lines; all but the first are indented.
    pub(super) text: String,
    /// The branches below it.
    pub(super) below: Vec<Self>,
}

impl Artist {
    /// Draws the tree, or the reason why there is none. `since` returns the start of a problem, if known.
    pub(crate) fn draw(
        self,
        target: &str,
        seen: &Result<Arc<Snapshot>, WatchError>,
        since: impl Fn(&Warning<'_>) -> Option<String>,
    ) -> Vec<String> {
        let title = self.paint.bold(target);
        let (title, below) = match seen {
            Ok(snapshot) => {
                let (mark, below) = self.tree(snapshot, since);
                (format!("{mark} {title}  {}", self.heading(snapshot)), below)
            }
            Err(error) => (format!("{} {title}", self.bad_mark()), vec![Branch::leaf(self.failure(error))]),
        };
        let mut lines = vec![title];
        render(&below, "", &mut lines);
        lines
    }

    /// Draws the line from the listener to the virtual host.
    fn heading(self, snapshot: &Snapshot) -> String {
        let listener = snapshot.listener();
        let by_name = |name: &str| format!("routes {}", self.paint.cyan(Escaped(name)));
        let routes = match (snapshot.scope(), listener.api().map(|api| &api.routes)) {
            (Some(scope), _) => {
                let routes = match &scope.routes {
                    ScopedRouteSource::Rds(name) => by_name(name),
                    ScopedRouteSource::Inline(_) | _ => "its routes".to_owned(),
                };
                format!("scope {} → {routes}", self.paint.cyan(Escaped(&scope.name)))
            }
            (None, Some(RouteSource::Rds(routes))) => by_name(&routes.name),
            (None, _) => "its routes".to_owned(),
        };
        let host = snapshot.virtual_host();
        let mut domains: Vec<_> =
            host.domains.iter().take(SHOWN_DOMAINS).map(|domain| domain.as_str()).collect();
        if host.domains.len() > SHOWN_DOMAINS {
            domains.push("…");
        }
        format!(
            "listener {} → {routes} → virtual host {} {}",
            self.paint.cyan(Escaped(&listener.name)),
            self.paint.cyan(Escaped(&host.name)),
            self.paint.dim(Escaped(format_args!("({})", domains.join(", "))))
        )
    }

    /// Draws everything below the virtual host; also returns the mark of its state.
    fn tree(
        self,
        snapshot: &Snapshot,
        since: impl Fn(&Warning<'_>) -> Option<String>,
    ) -> (String, Vec<Branch>) {
        let warnings = Warning::of(snapshot);
        let (local, general): (Vec<_>, Vec<_>) =
            warnings.into_iter().partition(|warning| warning.is_local(snapshot));
        let warnings = general.iter().map(|warning| {
            let since = since(warning).map(|time| format!(" since {time}")).unwrap_or_default();
            let text = format!("may be stale{since}: {}: {warning}", warning.error().code());
            Branch::leaf(format!("{} {}", self.warning_mark(), self.paint.yellow(text)))
        });
        let mut below: Vec<_> = warnings.collect();
        let routes = [
            &snapshot.listener().remarks,
            &snapshot.route_config().remarks,
            &snapshot.virtual_host().remarks,
        ];
        below.extend(self.remarks(&routes));
        below.extend(Routes { artist: self, snapshot }.draw());
        below.extend(draw_clusters(self, snapshot, &local));
        let mark = if general.is_empty() { self.good_mark() } else { self.warning_mark() };
        (mark, below)
    }

    /// What is not used of resources: each part that is left out, and a line of the fields that channels do not execute.
    pub(super) fn remarks(self, remarks: &[&Remarks]) -> Vec<Branch> {
        let left_out = remarks.iter().flat_map(|remarks| remarks.left_out());
        let left_out = left_out.map(|part| {
            Branch::leaf(format!(
                "{} {}",
                self.warning_mark(),
                self.paint.yellow(format_args!("left out: {part}"))
            ))
        });
        let fields: BTreeSet<_> = remarks.iter().flat_map(|remarks| remarks.not_executed()).collect();
        let fields = (!fields.is_empty()).then(|| {
            let text = format!("not executed by channels: {}", join(fields, ", "));
            Branch::leaf(self.paint.dim(text).to_string())
        });
        left_out.chain(fields).collect()
    }

    /// The reason for an absence.
    pub(super) fn failure(self, error: &WatchError) -> String {
        self.paint.red(format_args!("{}: {error}", error.code())).to_string()
    }

    /// The mark of what works.
    pub(super) fn good_mark(self) -> String {
        self.paint.green("●").to_string()
    }

    /// The mark of what works but may be stale.
    pub(super) fn warning_mark(self) -> String {
        self.paint.yellow("!").to_string()
    }

    /// The mark of what does not work.
    pub(super) fn bad_mark(self) -> String {
        self.paint.red("✗").to_string()
    }
}

impl Branch {
    /// A branch with nothing below it.
    pub(super) fn leaf(text: String) -> Self {
        Self { text, below: Vec::new() }
    }
}

/// Draws branches as lines; each begins with `guide`.
pub(super) fn render(branches: &[Branch], guide: &str, lines: &mut Vec<String>) {
    for (index, branch) in branches.iter().enumerate() {
        let (here, below) = if index + 1 == branches.len() { ("└─", "  ") } else { ("├─", "│ ") };
        for (index, line) in branch.text.split('\n').enumerate() {
            let here = if index == 0 { here } else { below };
            lines.push(format!("{guide}{here} {line}"));
        }
        render(&branch.below, &format!("{guide}{below} "), lines);
    }
}

/// A percentage, with a decimal if it is not whole.
pub(super) fn percent(part: f64, whole: f64) -> String {
    // Shares of weights such as 1 : 2 are endless fractions, and whole ones look better without a decimal.
    let percent = part / whole * 100.0;
    if percent.fract().abs() < 0.05 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

/// The spaces that pad a text to the width of a column.
pub(super) fn padding(text: impl AsRef<str>, width: usize) -> String {
    " ".repeat(width.saturating_sub(text.as_ref().chars().count()))
}

/// The width of a column for some texts, excluding texts that are too wide.
pub(super) fn column<T: AsRef<str>>(texts: impl Iterator<Item = T>) -> usize {
    let widths = texts.map(|text| text.as_ref().chars().count());
    widths.filter(|width| *width <= WIDEST_COLUMN).max().unwrap_or(0)
}

/// Joins texts.
pub(super) fn join<T: Display>(parts: impl IntoIterator<Item = T>, separator: &str) -> String {
    parts.into_iter().map(|part| part.to_string()).collect::<Vec<_>>().join(separator)
}

/// The maximum number of shown domains of a virtual host.
const SHOWN_DOMAINS: usize = 3;

/// The first of some endpoints, split into lines, and the number of the others. `unusable_after` counts the unusable ones behind
/// the first so many.
pub(super) fn shown(
    endpoints: impl ExactSizeIterator<Item = String>,
    unusable_after: impl Fn(usize) -> usize,
) -> Vec<String> {
    let hidden = endpoints.len().saturating_sub(SHOWN_ENDPOINTS);
    let mut texts: Vec<_> = endpoints.take(SHOWN_ENDPOINTS).collect();
    match (hidden, unusable_after(SHOWN_ENDPOINTS)) {
        (0, _) => {}
        (more, 0) => texts.push(format!("… and {more} more")),
        (more, unusable) => texts.push(format!("… and {more} more, {unusable} of them not usable")),
    }
    texts.chunks(IN_LINE).map(|texts| texts.join("  ")).collect()
}

/// The maximum number of shown endpoints of a locality, and of endpoints in a line.
const SHOWN_ENDPOINTS: usize = 12;
/// The number of endpoints in a line.
const IN_LINE: usize = 4;

/// The widest text that a column is made for, in characters: a longer one moves the rest of its line alone.
const WIDEST_COLUMN: usize = 40;
