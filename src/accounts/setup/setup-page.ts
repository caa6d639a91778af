/**
 * The set-up page before its script has run. The token stands behind the "#" of its address, which no server is sent.
 * Once there is an administrator the page says so, and has neither form nor script.
 */
export function setupPage(hasAdmin: boolean): string {
  return page(hasAdmin ? '' : SCRIPT, hasAdmin ? DONE : FORM);
}

const SCRIPT = '<script type="module" src="/setup/setup.js"></script>\n';

const DONE = `<p id="intro">There is an administrator already, so this page creates no other one. Ask an administrator for an account, or run on the server: <code>trestle user create --email E --name N --role admin</code></p>
`;

const FORM = `<p id="intro">This account may do everything here. There is no other one yet.</p>
<form id="form" autocomplete="on">
<label for="name">Name</label>
<input id="name" name="name" autocomplete="name" required maxlength="64">
<label for="email">E-mail address</label>
<input id="email" name="email" type="email" autocomplete="username" required maxlength="254">
<label for="password">Password <small>at least 8 characters</small></label>
<input id="password" name="password" type="password" autocomplete="new-password" required minlength="8">
<label for="again">Password again</label>
<input id="again" name="again" type="password" autocomplete="new-password" required minlength="8">
<button type="submit">Create</button>
</form>
<p id="message" role="status" aria-live="polite"></p>
<noscript><p>This page needs JavaScript. On the command line: <code>trestle user create --email E --name N --role admin</code></p></noscript>
`;

const page = (script: string, main: string) => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>First administrator</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/setup/setup.css">
${script}</head>
<body>
<main>
<h1>First administrator</h1>
${main}</main>
</body>
</html>
`;
