export interface PageAddresses {
  /** Where scripts and styles are served, with a slash at the end. */
  readonly assetsPath: string;
  readonly openApiPath: string;
}

/** The page before its script has run: no inline script or style, so that the policy can forbid them all. */
export function pageHtml({ assetsPath, openApiPath }: PageAddresses): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${assetsPath}page.css">
<link rel="service-desc" type="application/json" href="${openApiPath}">
<script type="module" src="${assetsPath}page.js"></script>
</head>
<body>
<a class="skip" href="#main">Skip to the operation</a>
<header>
<button type="button" id="menu" aria-expanded="false" aria-controls="menu-panel">Operations</button>
<h1><span id="title">API</span> <small id="version"></small></h1>
<div class="token">
<label for="token">Bearer token</label>
<input id="token" type="password" autocomplete="off" spellcheck="false" placeholder="only kept in this tab">
</div>
</header>
<div class="frame">
<nav id="menu-panel" aria-label="Operations">
<label for="search" class="hidden-label">Search operations</label>
<input id="search" type="search" autocomplete="off" spellcheck="false" placeholder="Search">
<div id="operations"></div>
</nav>
<main id="main" tabindex="-1">
<p>Reading the API description …</p>
<noscript><p>This page needs JavaScript. The API description itself is at <a href="${openApiPath}">${openApiPath}</a>.</p></noscript>
</main>
</div>
</body>
</html>
`;
}
