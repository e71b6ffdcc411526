//! Levels of the process in Envoy's statistics.

use super::*;

#[test]
fn levels_of_the_process_are_published() {
    let mut proxy = Proxy::new(&one_rule(""));
    proxy.host().memory_bytes.set(3 << 20);
    let process = Rc::clone(proxy.process());
    process.missing_clusters.borrow_mut().insert("c".to_owned());
    for _ in 0..100 {
        proxy.of("acme");
        proxy.tick(TICK);
    }
    let names = ["safe_mode", "missing_clusters", "slots_used", "waiting"];
    assert_eq!(names.map(|name| proxy.metric(name)), [1, 1, 1, 0]);
    assert_eq!(proxy.metric("vm_memory_bytes"), 3 << 20);
    assert!(proxy.metric("refresh_errors") > 0);
    process.missing_clusters.borrow_mut().clear();
    for _ in 0..100 {
        proxy.of("acme");
        proxy.tick(TICK);
        proxy.answer(100.0);
    }
    assert_eq!(names.map(|name| proxy.metric(name)), [0, 0, 1, 0]);
}
