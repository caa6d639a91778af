import './styles/tokens.css';
import './styles/base.css';
import './styles/screens.css';
import { QueryClientProvider } from '@tanstack/react-query';
import { createRoot } from 'react-dom/client';
import { Router } from 'wouter';
import { systemOfPage } from './data/accounts.ts';
import { readNamedSession } from './data/bridge.ts';
import { queries } from './data/queries.ts';
import { BASE } from './data/request.ts';
import { App, loadScreen } from './routes.tsx';

const system = systemOfPage();
// A token would have to be asked for first.
if (system?.services.includes('bridge') && system.signIn !== 'token') readNamedSession(location);

/** How long the page stays empty while its screen is loaded; then it says that it loads. */
const EMPTY_MS = 1000;

const place = document.getElementById('root');
if (place !== null) {
  const longEnough = new Promise((resolve) => setTimeout(resolve, EMPTY_MS));
  await Promise.race([loadScreen(location.pathname.slice(BASE.length)), longEnough]);
  createRoot(place).render(
    <QueryClientProvider client={queries}>
      <Router base={BASE}>
        <App />
      </Router>
    </QueryClientProvider>,
  );
}
