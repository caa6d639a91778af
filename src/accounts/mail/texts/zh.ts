import type { MailTexts } from './en.ts';

/** All mails in Chinese (simplified). */
export const zh: MailTexts = {
  registrationCode: {
    subject: '您的验证码',
    text: ['您的验证码是 {code}', '验证码自首次申请起十分钟内有效。如果不是您本人申请，请忽略此邮件。'],
  },
  accountExists: {
    subject: '您已经有账户了',
    text: [
      '有人（可能是您本人）尝试用此邮箱地址建立账户。您已经有账户：请直接登录；如果忘记了密码，请申请重设密码。如果不是您本人操作，则无需处理。',
    ],
  },
  passwordReset: {
    subject: '设置新密码',
    text: [
      '有人（可能是您本人）申请设置新密码。请在 15 分钟内打开',
      '{link}',
      '或提供此令牌：{token}',
      '如果不是您本人操作，请忽略此邮件：密码不会改变。',
    ],
  },
  setPassword: {
    subject: '已为您创建账户',
    text: [
      '管理员已为此邮箱地址创建账户。请在三天内打开以下链接设置密码',
      '{link}',
      '或提供此令牌：{token}',
      '如果您不了解此事，请忽略此邮件。',
    ],
  },
  invitation: {
    subject: '您收到了邀请',
    text: [
      '管理员邀请您创建账户。请在七天内打开',
      '{link}',
      '或提供此令牌：{token}',
      '如果您不了解此事，请忽略此邮件。',
    ],
  },
  accountClosing: {
    subject: '您的账户将被删除',
    text: [
      '您申请了删除账户。账户及其全部数据将于 {day}（UTC）删除；其密钥从现在起失效。在此之前，您可以登录并撤销删除。',
      '如果不是您本人操作，请立即登录，撤销删除，并设置新密码。',
    ],
  },
  webhookDisabled: {
    subject: 'Webhook 已停用',
    text: [
      '发往 {host} 的 Webhook 已停用，因为三天内没有一次投递成功。事件不再发送到该地址。',
      '投递列表会显示原因。请修复接收端，然后重新启用该 Webhook。',
    ],
  },
  notice: {
    subject: '您的账户有变更',
    text: ['{notice}', '如果不是您本人操作，请立即设置新密码，并结束您不认识的会话。'],
  },
  notices: {
    oauthLinked: '现在可以用其他网站的账户登录您的账户。',
    passwordRemoved: '您账户的密码已被移除。',
    passkeyRemoved: '通行密钥“{name}”已从您的账户移除。',
    linkRemoved: '通过 {provider} 的登录方式已从您的账户移除。',
    tokenCreated: '您的账户新建了访问令牌“{name}”，可用于：{scopes}。',
    passkeyAdded: '您的账户新增了一个通行密钥。',
    mfaEnabled: '您账户的双重验证已开启。',
    mfaDisabled: '您账户的双重验证已关闭。',
    mfaReset: '管理员已移除您账户的双重验证。',
    recoveryCodesRenewed: '您的账户已生成新的恢复代码；旧代码不再有效。',
    accountKept: '您的账户将保留：删除已撤销。',
    emailChanged: '您账户的邮箱地址已更改。今后的邮件将发送到新地址。',
    teamMember: '您现在是团队“{team}”的成员。',
    teamOwner: '您现在是团队“{team}”的负责人。',
    teamLeft: '您已不在团队“{team}”中。',
    passwordChanged: '您账户的密码已更改。',
    passwordChangedLinksStay:
      '您账户的密码已更改。以下其他网站的账户和通行密钥仍可登录：{links}。请移除不属于您的登录方式。',
    passwordChangedLinksRemoved: '您账户的密码已更改。已移除 {count} 个关联的登录方式。',
  },
};
