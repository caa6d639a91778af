/** The set-up page before its script has run. The token stands behind the "#" of its address, which no server is sent. */
export const setupPage = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>First administrator</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/setup/setup.css">
<script type="module" src="/setup/setup.js"></script>
</head>
<body>
<main>
<h1>First administrator</h1>
<p id="intro">This account may do everything here. There is no other one yet.</p>
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
</main>
</body>
</html>
`;
