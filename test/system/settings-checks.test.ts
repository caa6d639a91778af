import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatProblem } from '../../src/platform/config/problem.ts';
import { resolveTrestle } from '../kit/resolve-trestle.ts';

/** What the file holds below `section`, and the one line that it leads to; without a line it is right. */
type CheckCase = readonly [what: string, value: string, line?: RegExp];

const SECTIONS: Readonly<Record<string, readonly CheckCase[]>> = {
  bridge: [
    [
      'a review token equal to the main token',
      '{ auth_token: abc, review_auth_token: abc }',
      /^trestle\.yaml:1:47: bridge\.review_auth_token: it is the same as the main token/,
    ],
    ['a token with a space', '{ auth_token: "a b" }', /bridge\.auth_token: the value has a space/],
    [
      'an alias that hides a method prefix',
      '{ method_prefix_aliases: [acme, app] }',
      /method_prefix_aliases\[1\]: "app" is a prefix of its own/,
    ],
    [
      'one folder for all people',
      '{ user_root: /srv/people }',
      /bridge\.user_root: all people would share one folder; put \{user\} into it/,
    ],
    ['MCP servers', '{ mcp_servers: [{ name: a, command: x }, { name: b, url: "https://b.test" }] }'],
    [
      'an MCP server without a way to it',
      '{ mcp_servers: [{ name: a }] }',
      /mcp_servers\[0\]: there is no way to reach/,
    ],
    [
      'an MCP server with two ways to it',
      '{ mcp_servers: [{ name: a, command: x, url: "https://b.test" }] }',
      /mcp_servers\[0\]: it has both "command" and "url"; give "command" for a program, or "url"/,
    ],
    [
      'two MCP servers of one name',
      '{ mcp_servers: [{ name: a, command: x }, { name: a, command: y }] }',
      /mcp_servers\[1\]\.name: the name "a" is taken; choose another name/,
    ],
    ['an origin with a path', '{ allowed_origins: ["https://a.example/x"] }', /say https:\/\/a\.example$/],
  ],
  plans: [
    ['a plan without the bridge', '{ pro: { running_turns: 8, jobs: 100 } }'],
    [
      'a plan with the bridge for people who are not trusted',
      '{ pro: { bridge: true } }\nbridge: { sandbox: off }',
      /plans\.pro\.bridge: agents would work for people .*set bridge\.trust_users to true/,
    ],
    ['the same for people who are', '{ pro: { bridge: true } }\nbridge: { sandbox: off, trust_users: true }'],
    ['the same where a sandbox is tried', '{ pro: { bridge: true } }'],
  ],
  listen: [['a listen address without host', '":8787"', /say 0\.0\.0\.0:8787/]],
  secret_key: [['a secret key of the wrong length', 'YWJj', /the value holds 3 bytes; expected 32 bytes in base64/]],
  database: [
    [
      'a database of another kind',
      '{ url: "mysql://a:b@c" }',
      /expected a URL that starts with postgres:\/\/ or postgresql:\/\//,
    ],
  ],
  gateway: [
    [
      'DB-12: a gateway named like a run of several agents',
      '{ provider_id: multi-agent }',
      /gateway\.provider_id: the id "multi-agent" is taken/,
    ],
  ],
  agents: [
    [
      'DB-12: a custom agent named like a run of several agents',
      '{ custom: [{ id: multi-agent, command: x }] }',
      /agents\.custom\[0\]\.id: the id "multi-agent" is taken; choose another id/,
    ],
    [
      'a default agent outside the catalog',
      '{ catalog: [codex], default: builtin }',
      /agents\.default: "builtin" is not in the catalog/,
    ],
    [
      'DU-15: a model of the built-in agent that is neither an alias nor of an API',
      '{ builtin: { model: gpt-5.1 } }',
      /agents\.builtin\.model: there is no model "gpt-5\.1"; name an alias of completions\.models, or .*openai\/gpt-5\.1/,
    ],
    ['a model of an API of its own', '{ builtin: { model: gpt-5.1, base_url: "https://models.example/v1" } }'],
    [
      'two MCP servers of one name',
      '{ builtin: { mcp: [{ name: a, command: b }, { name: a, command: c }] } }',
      /agents\.builtin\.mcp\[1\]\.name: the name "a" is there twice/,
    ],
    ['a default agent that is custom', '{ default: claude, custom: [{ id: claude, command: claude-agent-acp }] }'],
    [
      'an unknown agent in the catalog',
      '{ catalog: [builtin, codx] }',
      /agents\.catalog\[1\]: there is no agent "codx"; did you mean "codex"\?/,
    ],
    [
      'a custom agent with a shipped id',
      '{ custom: [{ id: codex, command: x }] }',
      /agents\.custom\[0\]\.id: the id "codex" is taken/,
    ],
    [
      'two custom agents with one id',
      '{ custom: [{ id: a, command: x }, { id: a, url: "http://a" }] }',
      /agents\.custom\[1\]\.id: the id "a" is taken/,
    ],
    [
      'a custom agent with the id of the gateway',
      '{ custom: [{ id: openclaw, command: x }] }',
      /the id "openclaw" is taken/,
    ],
    [
      'a custom agent that cannot be reached',
      '{ custom: [{ id: a }] }',
      /agents\.custom\[0\]: there is no way to reach the agent/,
    ],
    ['a custom agent without an id', '{ custom: [{ command: x }] }', /agents\.custom\[0\]\.id: this is required/],
    [
      'a number among the variables of an agent',
      '{ codex: { env: { PORT: 8080 } } }',
      /agents\.codex\.env\.PORT: the value is a number; expected one line of text/,
    ],
  ],
  distributed: [
    ['the short form of forwarding', '{ topology: dual-node, local_node_id: edge, task_forward_peer_id: primary }'],
    [
      'forwarding without an own id',
      '{ task_forward_peer_id: primary }',
      /distributed\.local_node_id: a node that forwards needs an id/,
    ],
    [
      'an unknown peer',
      '{ local_node_id: a, task_forward_peer_id: primry }',
      /there is no node "primry"; did you mean "primary"\?/,
    ],
    ['a peer that is this node', '{ local_node_id: edge, task_forward_peer_id: edge }', /"edge" is this node itself/],
    [
      'an endpoint that is no URL',
      '{ nodes: [{ id: a, bridge_endpoint: "10.0.0.1:8787" }] }',
      /nodes\[0\]\.bridge_endpoint: "10\.0\.0\.1:8787" is not a URL/,
    ],
    ['an endpoint of another scheme', '{ nodes: [{ id: a, bridge_endpoint: "ws://10.0.0.1" }] }', /has another scheme/],
    ['a node id that no header can carry', '{ local_node_id: "a\\tb" }', /local_node_id/],
    [
      'two nodes with one id',
      '{ nodes: [{ id: a, bridge_endpoint: "http://a" }, { id: a, bridge_endpoint: "http://b" }] }',
      /the node "a" is there twice/,
    ],
    [
      'a rule without target',
      '{ local_node_id: x, forwarding: { rules: [{ methods: ["*"] }] } }',
      /rules\[0\]\.target: the rule has no target/,
    ],
    [
      'a rule with two targets',
      '{ local_node_id: x, forwarding: { rules: [{ methods: ["*"], target: { node_id: edge, selector: { role: hub } } }] } }',
      /both "node_id" and "selector"/,
    ],
    [
      'a rule to an unknown node',
      '{ local_node_id: x, forwarding: { rules: [{ methods: [a], target: { node_id: far } }] } }',
      /rules\[0\]\.target\.node_id: there is no node "far"/,
    ],
    [
      'a rule by selector',
      '{ local_node_id: x, forwarding: { rules: [{ methods: [a], target: { selector: { zone: eu }, strategy: round_robin } }] } }',
    ],
    [
      'a rule without methods',
      '{ local_node_id: x, forwarding: { rules: [{ methods: [], target: { node_id: edge } }] } }',
      /methods: the list is too short/,
    ],
    [
      'a route over an unknown node',
      '{ local_node_id: x, forwarding: { routes: [{ target_node_id: edge, next_hop_node_id: far }] } }',
      /routes\[0\]\.next_hop_node_id: there is no node "far"/,
    ],
    ['a hop limit of nothing', '{ forwarding: { hop_limit: 0 } }', /hop_limit: 0 is out of range/],
  ],
  completions: [
    [
      'two aliases with one name',
      '{ models: [{ name: a, targets: [{ model: x/y }] }, { name: a, targets: [{ model: x/y }] }] }',
      /models\[1\]\.name: the alias "a" is there twice/,
    ],
    [
      'a fallback to an unknown alias',
      '{ models: [{ name: a, targets: [{ model: x/y }], fallbacks: [smart] }, { name: smrt, targets: [{ model: x/y }] }] }',
      /fallbacks\[0\]: there is no alias "smart"; did you mean "smrt"\?/,
    ],
    [
      'an alias that falls back to itself',
      '{ models: [{ name: a, targets: [{ model: x/y }], context_fallbacks: [a] }] }',
      /context_fallbacks\[0\]: the alias falls back to itself/,
    ],
    [
      'an unknown dialect',
      '{ apis: { lab: { dialect: opnai } } }',
      /apis\.lab\.dialect: "opnai" is not a possible value; .*did you mean "openai"\?/,
    ],
    [
      'an API whose name has a slash',
      '{ apis: { a/b: {} } }',
      /completions\.apis\["a\/b"\]: the key does not have the right form/,
    ],
    [
      'a key of an API with a line end',
      '{ apis: { lab: { api_key: "a\\n" } } }',
      /apis\.lab\.api_key: the value has a space or a line end/,
    ],
    ['an API of which only the key is given', '{ apis: { groq: { api_key: k } } }'],
    [
      'a price that is no price',
      '{ prices: { "lab/small": { input: -1 } } }',
      /prices\["lab\/small"\]\.input: -1 is out of range/,
    ],
  ],
  accounts: [
    [
      'unencrypted mail to elsewhere',
      '{ smtp: { host: mail.example, from: a@b.example, tls: none } }',
      /accounts\.smtp\.tls: mail would leave this machine unencrypted/,
    ],
    ['unencrypted mail to this machine', '{ smtp: { host: "::1", from: a@b.example, tls: none } }'],
    ['mail without a sender', '{ smtp: { host: mail.example } }', /accounts\.smtp\.from: mail needs a sender/],
    [
      'a sender with a line end',
      '{ smtp: { from: "a@b.c\\r\\nBcc: x@y.z" } }',
      /accounts\.smtp\.from: "a@b\.c\\r\\nBcc: x@y\.z" has a control character/,
    ],
    ['a sender with a name', '{ smtp: { host: mail.example, from: "Trestle <a@b.example>" } }'],
    [
      'half an OAuth client',
      '{ oauth: { github: { client_id: a } } }',
      /oauth\.github\.client_secret: one half of the client is missing/,
    ],
    [
      'an issuer with a taken id',
      '{ oauth: { oidc: [{ id: github, issuer: "https://a.example", client_id: x }] } }',
      /oidc\[0\]\.id: the id "github" is taken/,
    ],
    [
      'an issuer without encryption',
      '{ oauth: { oidc: [{ id: a, issuer: "http://a.example", client_id: x }] } }',
      /oidc\[0\]\.issuer: logins would be sent unencrypted/,
    ],
    [
      'two node agents with one token',
      '{ agents: [{ id: a, token: abc }, { id: b, token: abc }] }',
      /agents\[1\]\.token: another agent has the same token/,
    ],
    [
      'two node agents with one id',
      '{ agents: [{ id: a }, { id: a }] }',
      /agents\[1\]\.id: the agent "a" is there twice/,
    ],
  ],
};

for (const [section, cases] of Object.entries(SECTIONS)) {
  for (const [what, value, line] of cases) {
    test(`${section}: ${what} is ${line === undefined ? 'accepted' : 'a problem'}`, () => {
      const lines = resolveTrestle(`${section}: ${value}`).problems.map(formatProblem);
      if (line === undefined) return assert.deepEqual(lines, []);
      assert.equal(lines.length, 1, lines.join('\n'));
      assert.match(lines[0] ?? '', line);
      assert.doesNotMatch(lines[0] ?? '', /abc/);
    });
  }
}
