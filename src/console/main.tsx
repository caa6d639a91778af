import './styles/tokens.css';
import './styles/base.css';
import './styles/screens.css';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { createRoot } from 'react-dom/client';
import { Router } from 'wouter';
import { BASE, Problem } from './data/request.ts';
import { App } from './routes.tsx';

const RETRIES = 2;

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      // A refusal stays one; a lost connection may come back.
      retry: (count, error) => count < RETRIES && !(error instanceof Problem && error.status > 0 && error.status < 500),
      staleTime: 5000,
      refetchOnWindowFocus: false,
    },
  },
});

const place = document.getElementById('root');
if (place !== null) {
  createRoot(place).render(
    <QueryClientProvider client={queries}>
      <Router base={BASE}>
        <App />
      </Router>
    </QueryClientProvider>,
  );
}
