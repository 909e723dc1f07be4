//! Console over a store in memory: pages, their filters, and texts that people wrote.

use super::site::Site;
use axum::{body::Body, http::Request};
use dormer_api::CommandFlags;
use dormer_views::address::KUBECONFIG_HEADER;
use serde_json::json;
use std::time::Duration;
use tokio::time::timeout;
use tower::ServiceExt;

const IN_TIME: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fleet_page_links_to_machine_pages_with_their_history() {
    let site = Site::new().await;
    let (status, policy, fleet) = site.page("/").await;
    assert_eq!(status, 200);
    assert!(policy.contains("default-src 'none'"), "{policy}");
    assert!(
        fleet.contains("<a href=\"/machines/u1\">win-u1</a>"),
        "{fleet}"
    );
    assert!(fleet.contains("data-state=\"Provisioned\""), "{fleet}");
    // Once the first attempt has failed.
    let failed = timeout(IN_TIME, async {
        loop {
            let (status, _, machine) = site.page("/machines/win-u1").await;
            assert_eq!(status, 200);
            if machine.contains("the probe of 10.0.0.9 to succeed") {
                return machine;
            }
            tokio::task::yield_now().await;
        }
    });
    let machine = failed.await.expect("in time");
    for expected in [
        "the run began",
        "→ probe",
        "machines/u1/actions/pause",
        "<dt>Do now</dt>",
        "class=\"spot here\" data-state=\"Provisioned\"",
        "bring-up",
    ] {
        assert!(machine.contains(expected), "{expected}: {machine}");
    }
    let (status, _, rollout) = site.page("/rollouts/windows").await;
    assert!(
        status == 404 || rollout.contains("rollouts/windows/actions/pause"),
        "{rollout}"
    );
    for asset in ["/console.js", "/console.css", "/icon.svg"] {
        assert_eq!(site.page(asset).await.0, 200);
    }
    let (status, _, nobody) = site.page("/machines/nobody").await;
    assert!(
        status == 404 && nobody.contains("there is no machine"),
        "{nobody}"
    );
    let rollouts = site.page("/rollouts").await;
    assert_eq!(rollouts.0, 200);
    assert!(rollouts.2.contains("aria-current=\"page\">Rollouts</a>"));
    let plan = site.page("/plan").await.2;
    assert!(plan.contains("There is no plan: "), "{plan}");
    let (status, _, none) = site.page("/nope").await;
    assert_eq!(status, 404);
    assert!(
        none.contains("There is no page /nope") && none.contains("href=\"/plan\""),
        "{none}"
    );
    let bogus = site.page("/?state=bogus").await.2;
    let said = "There is no state &quot;bogus&quot;; the states are: Failed, ";
    assert!(
        bogus.contains(said) && bogus.contains(", stuck."),
        "{bogus}"
    );
    let settings = site.page("/settings").await.2;
    assert!(settings.contains("Nothing was refused."), "{settings}");
    let activity = site.page("/activity").await.2;
    assert!(activity.contains("Nobody has asked"), "{activity}");
    assert!(
        site.page("/dead-letters")
            .await
            .2
            .contains("There are no dead letters.")
    );
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_is_searched_and_filtered() {
    let site = Site::new().await;
    for (query, found) in [
        ("?q=WIN-u", true),
        ("?q=10.0.0.9%20win", true),
        ("?q=nobody", false),
        ("?state=Joined", false),
        ("?state=Provisioned&pool=windows&page=7", true),
        ("?pool=linux", false),
        ("?sort=-since", true),
        ("?cause=access_denied", false),
        ("?version=v9", false),
        ("?q=&state=&page=x", true),
    ] {
        let (status, _, page) = site.page(&format!("/{query}")).await;
        assert_eq!(status, 200, "{query}");
        assert_eq!(
            page.contains("<tr data-key=\"u1\">"),
            found,
            "{query}: {page}"
        );
    }
    let (_, _, page) = site.page("/?q=%22%3E%3Cb%3E").await;
    assert!(page.contains("value=\"&quot;&gt;&lt;b&gt;\""), "{page}");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_people_write_is_text_on_a_page_and_nothing_more() {
    let site = Site::new().await;
    let why = json!({"who": "<b>ann</b>", "why": "<script>alert(1)</script>"});
    site.post("/machines/u1/actions/pause", &why).await;
    let (_, _, page) = site.page("/machines/u1").await;
    assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
    assert!(
        !page.contains("<script>alert") && !page.contains("<b>ann"),
        "{page}"
    );
    assert!(page.contains("machines/u1/actions/resume"), "{page}");
    let (_, _, page) = site.page("/activity").await;
    for expected in [
        "&lt;b&gt;ann&lt;/b&gt;</td>",
        "&lt;script&gt;alert(1)",
        ">API</td>",
        "<td data-label=\"What\">pause</td>",
    ] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_a_demonstration_name_its_server_and_its_kubeconfig() {
    let site = Site::new().await;
    let kubeconfig = || async {
        let request = Request::get("/api/v1/machines").body(Body::empty());
        let request = request.expect("a request");
        let answer = site.router.clone().oneshot(request).await;
        let headers = answer.expect("an answer").headers().clone();
        headers.get(KUBECONFIG_HEADER).cloned()
    };
    let pause = json!({"why": "a test"});
    site.post("/machines/u1/actions/pause", &pause).await;
    let (_, _, page) = site.page("/machines/u1").await;
    assert!(page.contains("<code>dormer resume win-u1</code>"), "{page}");
    assert_eq!(kubeconfig().await, None);

    let server = "http://127.0.0.1:7081";
    let ignored = "http://127.0.0.1:7082";
    for server in [server, ignored] {
        site.api.set_command_flags(CommandFlags {
            server: server.into(),
            kubeconfig: "/tmp/demo/kubeconfig".into(),
        });
    }
    let resume = format!("<code>dormer resume win-u1 --server {server}</code>");
    for path in ["/machines/u1", "/"] {
        let (_, _, page) = site.page(path).await;
        assert!(page.contains(&resume), "{path}: {page}");
    }
    let named = kubeconfig().await.expect("a header");
    assert_eq!(named, "/tmp/demo/kubeconfig");
    site.end().await;
}
