//! The mesh of `gcp/mesh.go`, as the tests expect it.

pub(crate) const SERVICES: [&str; 25] = [
    "shop",
    "cart",
    "checkout",
    "orders",
    "payments",
    "inventory",
    "catalog",
    "search",
    "reviews",
    "ratings",
    "users",
    "sessions",
    "email",
    "shipping",
    "tracking",
    "returns",
    "pricing",
    "taxes",
    "coupons",
    "loyalty",
    "ads",
    "images",
    "gateway",
    "audit",
    "reports",
];

/// Names of the services with RDS in their listeners.
pub(crate) fn services_with_rds() -> Vec<&'static str> {
    let numbered = SERVICES.into_iter().enumerate();
    numbered.filter(|(number, _)| number % 3 != 0).map(|(_, service)| service).collect()
}

/// Names of all clusters that have endpoints.
pub(crate) fn endpoint_clusters() -> Vec<String> {
    SERVICES.into_iter().flat_map(clusters_of).collect()
}

/// Names of all clusters.
pub(crate) fn clusters() -> Vec<String> {
    let mut all = endpoint_clusters();
    all.extend(["orders".to_owned(), "orders-fallback".to_owned()]);
    all.sort();
    all
}

/// All 200 addresses, sorted as text.
pub(crate) fn addresses() -> Vec<String> {
    let services = 1..=SERVICES.len();
    let mut all: Vec<_> =
        services.flat_map(|number| (1..=8).map(move |i| format!("10.1.{number}.{i}:8080"))).collect();
    all.sort();
    all
}

/// The addresses of a service, sorted as text.
pub(crate) fn addresses_of(service: &str) -> Vec<String> {
    let number = 1 + SERVICES.iter().position(|known| *known == service).expect("there is such a service");
    (1..=8).map(|i| format!("10.1.{number}.{i}:8080")).collect()
}

fn clusters_of(service: &str) -> Vec<String> {
    match service {
        "shop" | "cart" | "checkout" => vec![format!("{service}-stable"), format!("{service}-canary")],
        "orders" => vec!["orders-primary".to_owned()],
        _ => vec![service.to_owned()],
    }
}
