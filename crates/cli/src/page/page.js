// The page asks the server each second, and shows the answers. Everything is set as text: no answer becomes HTML.
"use strict";
(() => {
  const PAUSE = 1000, RETRY = 3000;
  const at = id => document.getElementById(id);

  // Control characters, and those that change the direction of text.
  const HARMFUL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
  const clean = text => String(text ?? "").replace(HARMFUL, it => "\\u{" + it.codePointAt(0).toString(16) + "}");
  const set = (node, text) => { const safe = clean(text); if (node.textContent !== safe) node.textContent = safe; };
  const show = (node, is) => { node.hidden = !is; };
  const make = (parent, tag, kind = "") => {
    const node = document.createElement(tag);
    node.className = kind;
    parent.append(node);
    return node;
  };
  const count = (number, word) => number + " " + word + (number === 1 ? "" : "s");
  const clock = seconds => {
    if (seconds === undefined) return "";
    const all = Math.floor(seconds), two = number => String(number).padStart(2, "0");
    const [days, hours, minutes] = [Math.floor(all / 86400), Math.floor(all / 3600) % 24, Math.floor(all / 60) % 60];
    const rest = hours || days ? two(minutes) + ":" + two(all % 60) : minutes + ":" + two(all % 60);
    return days ? days + "-" + two(hours) + ":" + rest : hours ? hours + ":" + rest : rest;
  };
  const moment = millis => new Date(millis).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });

  // Brings rows up to date. Those that stay are not replaced, so that they keep focus and selection.
  const rows = (parent, tag, items, key, fill) => {
    const old = new Map([...parent.children].map(row => [row.dataset.key, row]));
    let next = parent.firstElementChild;
    for (const item of items) {
      const name = String(key(item));
      let row = old.get(name);
      if (row) old.delete(name);
      else { row = document.createElement(tag); row.dataset.key = name; }
      if (row === next) next = next.nextElementSibling;
      else parent.insertBefore(row, next);
      fill(row, item);
    }
    old.forEach(row => row.remove());
  };
  const cells = (row, kinds) => { if (!row.cells.length) kinds.forEach(kind => make(row, "td", kind)); return row.cells; };
  const link = (cell, target, text) => {
    const node = cell.firstElementChild ?? make(cell, "a");
    node.href = target;
    set(node, text);
  };
  const state = (cell, word) => {
    const node = cell.firstElementChild ?? make(cell, "span");
    node.className = "state " + word;
    set(node, word);
  };

  let chosen = null;      // the job that is shown
  let task = "";          // the task of an array; "": the first one
  let mark = "";          // of the output that is shown
  let report = 0;         // the number of the report that is shown
  let awaited = false;    // a report was asked for
  let timer = 0, turn = 0;

  const ask = async (path, options) => {
    const failed = (text, status) => Object.assign(new Error(text), { status });
    let answer, text;
    try {
      answer = await fetch(path, { cache: "no-store", redirect: "error", ...options });
      text = await answer.text();
    } catch {
      throw failed("no connection", 0);
    }
    if (!answer.ok) throw failed(text.trim(), answer.status);
    return text;
  };

  const trouble = text => { set(at("trouble"), text); show(at("trouble"), text); };

  const showState = data => {
    const machine = data.machine;
    set(at("machine"), machine.machine);
    document.title = clean(machine.machine) + " · rally";
    set(at("facts"), [
      machine.free + " of " + count(machine.slots, "slot") + " free",
      machine.usable + " of " + count(machine.nodes, "node") + " usable",
      machine.running + " running",
      machine.waiting + " waiting",
      "up " + clock(machine.up_seconds),
    ].join(" · "));
    trouble(machine.trouble ? "The store of the machine cannot be written: " + machine.trouble : machine.ending ? "The machine is about to end." : "");
    set(at("jobs-note"), data.more ? count(data.more, "more job") + " are not shown" : "");
    show(at("no-jobs"), !data.jobs.length);
    show(at("jobs"), data.jobs.length);
    rows(at("jobs").tBodies[0], "tr", data.jobs, job => job.job, (row, job) => {
      const [number, name, word, slots, time, why] = cells(row, ["n", "w", "", "n slots", "n time", "why"]);
      link(number, "#job-" + job.job, job.job);
      set(name, job.name);
      state(word, job.state);
      set(slots, job.slots);
      set(time, clock(job.elapsed_seconds));
      set(why, isActive(job) ? where(job) : job.waits ?? job.reason ?? where(job));
      row.classList.toggle("on", chosen === job.job);
      if (chosen === job.job) row.setAttribute("aria-current", "true"); else row.removeAttribute("aria-current");
    });
    set(at("nodes-note"), count(data.nodes.length, "node"));
    rows(at("nodes").tBodies[0], "tr", data.nodes, node => node.node, (row, node) => {
      const [name, word, use, why] = cells(row, ["w", "", "", "why"]);
      set(name, node.node);
      state(word, node.state);
      if (!use.firstElementChild) { make(use, "meter"); make(use, "span"); }
      const [meter, text] = use.children;
      meter.max = node.slots;
      meter.value = node.slots - node.free;
      set(text, [node.slots - node.free + " of " + node.slots, ...counted(node.resources)].join(", "));
      set(why, node.reason ?? (node.jobs.length ? node.jobs.join(", ") : ""));
    });
  };

  // Memory is in bytes, and every node has it: only the others are worth their room.
  const counted = resources => Object.entries(resources)
    .filter(([name]) => name !== "memory")
    .map(([name, amount]) => amount.all - amount.free + " of " + amount.all + " " + name);
  const amounts = resources => Object.entries(resources ?? {}).map(([name, amount]) => name + "=" + amount);
  const needs = job => {
    const all = job.needs ?? {};
    return [
      ...(all.gpus ? [count(all.gpus, "GPU") + " on each node"] : []),
      ...(all.gpus_per_proc ? [count(all.gpus_per_proc, "GPU") + " for each rank"] : []),
      ...amounts(all.resources),
      ...amounts(all.resources_per_proc).map(text => text + " for each rank"),
      ...(all.memory_limit_bytes ? ["at most " + Math.round(all.memory_limit_bytes / 2 ** 20).toLocaleString() + " MiB on a node"] : []),
      ...(all.cpu_limit ? ["at most " + count(all.cpu_limit, "CPU") + " on a node"] : []),
    ].join(", ");
  };
  const isActive = job => job.state === "running" || job.state === "paused";
  const where = job => (job.tasks ? progress(job.tasks) + " " : "") + job.hosts.join(", ");
  const progress = tasks => {
    const over = tasks.succeeded + tasks.failed + tasks.canceled;
    const all = over + tasks.running + tasks.waiting;
    return over + "/" + all + " tasks" + (tasks.failed ? " (" + tasks.failed + " failed)" : "");
  };

  const facts = job => {
    const why = job.explained, list = [["command", job.command], ["state", job.state]];
    const add = (name, value) => { if (value) list.push([name, value]); };
    add("reason", job.reason);
    if (why) {
      add("waits", why.why);
      if (why.ahead_count) add("ahead", why.ahead.join(", ") + (why.ahead_count > why.ahead.length ? " and " + (why.ahead_count - why.ahead.length) + " more" : ""));
      add("start", why.start);
      add("sooner", why.sooner.join("; "));
    }
    add("tasks", job.tasks && progress(job.tasks) + (job.tasks.failed_indexes ? "; failed: " + job.tasks.failed_indexes : ""));
    add("slots", job.slots);
    add("needs", needs(job));
    add("nodes", job.hosts.join(", "));
    add("time", clock(job.elapsed_seconds));
    add("limit", clock(job.limit_seconds));
    add("priority", job.priority || "");
    add("submitted", moment(job.submitted));
    add("started", job.started && moment(job.started));
    add("ended", job.ended && moment(job.ended));
    return list;
  };

  const showJob = job => {
    set(at("job-title"), "Job " + job.job + ": " + job.name);
    const list = at("job-facts"), all = facts(job).flat();
    while (list.children.length > all.length) list.lastElementChild.remove();
    all.forEach((text, index) => set(list.children[index] ?? make(list, index % 2 ? "dd" : "dt"), text));
    const select = at("task");
    show(at("task-label"), job.tasks);
    rows(select, "option", [...new Set([...(job.task === undefined ? [] : [job.task]), ...(job.task_indexes)])], index => index, (option, index) => { option.value = index; set(option, index); });
    if (job.task !== undefined && document.activeElement !== select) select.value = job.task;
    show(at("stream-label"), job.has_errors);
    const printed = job.printed, output = at("output");
    set(at("path"), (printed.path ?? "") + (printed.skipped ? " (the last part; " + printed.skipped.toLocaleString() + " bytes before it)" : ""));
    output.dataset.none = printed.none ?? "nothing was printed yet";
    if (printed.none) set(output, "");
    if (printed.text !== undefined) {
      const isAtEnd = output.scrollTop + output.clientHeight >= output.scrollHeight - 4;
      set(output, printed.text);
      if (isAtEnd) output.scrollTop = output.scrollHeight;
    }
    mark = printed.mark;
    showReports(job);
  };

  const showReports = job => {
    const last = job.reports[0], making = last?.state === "making";
    if (last && last.state !== "making" && awaited) { awaited = false; if (last.state === "ready") openReport(last.id); }
    if (making) awaited = true;
    show(at("hang"), isActive(job) || job.reports.length);
    at("make").disabled = making || !isActive(job);
    if (making) set(at("made"), "A report is being made …");
    else if (last?.state === "failed") set(at("made"), "No report: " + last.why);
    else if (last?.state === "ready") set(at("made"), "");
    rows(at("reports"), "li", job.reports.filter(it => it.state === "ready"), it => it.id, (row, it) => {
      if (row.children.length) return;
      const open = make(row, "button");
      open.type = "button";
      set(open, "Show report " + it.id + (it.task === undefined ? "" : " of task " + it.task));
      open.addEventListener("click", () => openReport(it.id));
      row.append(" ");
      const tab = make(row, "a");
      tab.href = "/report/" + it.id;
      tab.target = "_blank";
      tab.rel = "noopener";
      set(tab, "in a tab of its own");
    });
  };

  const openReport = id => {
    if (report === id) return;
    report = id;
    const frame = document.createElement("iframe");
    // No name of ours, no cookie, no way to the page: the report shows names that a program has chosen.
    frame.setAttribute("sandbox", "allow-scripts");
    frame.title = "Hang report " + id;
    frame.src = "/report/" + id;
    at("report").replaceChildren(frame);
  };

  const choose = () => {
    const match = /^#job-(\d{1,10})$/.exec(location.hash);
    const job = match ? Number(match[1]) : null;
    if (job !== chosen) {
      [chosen, task, mark, report, awaited] = [job, "", "", 0, false];
      set(at("output"), "");
      set(at("made"), "");
      at("report").replaceChildren();
      at("errors").checked = false;
      show(at("job-body"), false);
      show(at("job-missing"), false);
      set(at("job-title"), job === null ? "" : "Job " + job);
    }
    show(at("detail"), job !== null);
    document.querySelector("main").classList.toggle("split", job !== null);
    if (job !== null) at("job-title").focus({ preventScroll: true });
    poll();
  };

  const jobPath = () => "/job/" + chosen + "?mark=" + mark + (task === "" ? "" : "&task=" + task) + (at("errors").checked ? "&stream=errors" : "");

  const poll = async () => {
    clearTimeout(timer);
    const mine = ++turn;
    const begun = performance.now();
    let pause = PAUSE;
    try {
      const data = JSON.parse(await ask("/state"));
      if (mine !== turn) return;
      showState(data);
      if (chosen !== null) {
        try {
          const job = JSON.parse(await ask(jobPath()));
          if (mine !== turn) return;
          show(at("job-missing"), false);
          show(at("job-body"), true);
          showJob(job);
        } catch (error) {
          if (error.status !== 409 || mine !== turn) throw error;
          set(at("job-missing"), error.message);
          show(at("job-missing"), true);
          show(at("job-body"), false);
        }
      }
      document.documentElement.dataset.ready = "yes";
    } catch (error) {
      if (error.status === undefined) throw error;
      if (mine !== turn) return;
      if (error.status === 410) return over("The machine has ended.");
      if (error.status === 403) return over(error.message);
      trouble(error.status ? error.message : "The page has no connection: `rally page` has ended, and perhaps the machine. Run `rally page` again.");
      pause = RETRY;
    }
    // A busy machine is asked less often. A page that nobody sees asks when it is seen again.
    if (!document.hidden) timer = setTimeout(poll, Math.max(pause, 10 * (performance.now() - begun)));
  };

  const over = text => {
    trouble(text);
    document.title = "ended · rally";
    document.documentElement.dataset.over = "yes";
    at("make").disabled = true;
  };

  const order = async () => {
    at("make").disabled = true;
    set(at("made"), "A report is being made …");
    try {
      await ask("/job/" + chosen + "/report" + (at("task-label").hidden ? "" : "?task=" + at("task").value), { method: "POST" });
      awaited = true;
      poll();
    } catch (error) {
      set(at("made"), "No report: " + error.message);
      at("make").disabled = false;
    }
  };

  at("make").addEventListener("click", order);
  at("task").addEventListener("change", () => { task = at("task").value; mark = ""; poll(); });
  at("errors").addEventListener("change", () => { mark = ""; poll(); });
  addEventListener("hashchange", choose);
  document.addEventListener("visibilitychange", () => { if (!document.hidden && !document.documentElement.dataset.over) poll(); });
  choose();
})();
